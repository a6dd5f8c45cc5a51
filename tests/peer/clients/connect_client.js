// The story through npm's kafka-connect-client. Arguments: the worker's address, the name of a connector, its config as JSON.
"use strict";

const { KafkaConnectClient } = require("kafka-connect-client");

const [url, name, text] = process.argv.slice(2);
const config = JSON.parse(text);
const update = { ...config, "emit.heartbeats.interval.seconds": "2" };
const wrong = { ...config, "tasks.max": "none" };
const plugin = "MirrorHeartbeatConnector";
const patienceMs = 60000;

const { hostname, port } = new URL(url);
const client = new KafkaConnectClient({ protocol: "http", host: hostname, port: Number(port) });
const connector = client.connector(name);
const absent = client.connector("absent");

const pause = () => new Promise((resolve) => setTimeout(resolve, 100));

// Each step, and the state that the connector must have reached before the next.
const steps = [
  ["root", () => client.getCluster()],
  ["list", () => client.getConnectors()],
  ["plugins", () => client.getConnectorPlugins({ connectorsOnly: false })],
  ["validate", () => client.validateConnectorConfig(plugin, config)],
  ["validate wrong", () => client.validateConnectorConfig(plugin, wrong)],
  ["absent", () => absent.get()],
  ["absent status", () => absent.getStatus()],
  ["create wrong", () => client.createConnector(name, wrong)],
  ["create", () => client.createConnector(name, config), "RUNNING"],
  ["list", () => client.getConnectors({ expand: "info" })],
  ["get", () => connector.get()],
  ["config", () => connector.getConfig()],
  ["status", () => connector.getStatus()],
  ["tasks", () => connector.getTasks()],
  ["task status", () => connector.getTaskStatus(0)],
  ["restart task", () => connector.restartTask(0), "RUNNING"],
  ["create again", () => client.createConnector(name, config)],
  // It sends these as forms without content: a worker must refuse them.
  ["pause", () => connector.pause()],
  ["resume", () => connector.resume()],
  ["stop", () => connector.stop()],
  ["reset topics", () => connector.resetTopics()],
  ["restart", () => connector.restart(), "RUNNING"],
  ["update", () => connector.updateConfig(update), "RUNNING"],
  ["config", () => connector.getConfig()],
  ["reset offsets", () => connector.resetOffsets()],
  ["alter offsets", () => connector.alterOffsets([])],
  ["delete", () => connector.delete(), "gone"],
  ["get", () => connector.get()],
];

// What a step gives, or the error it ends with. A worker that is busy with a rebalance is asked again.
async function outcome(action) {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      const answer = await action();
      const found = { status: answer.status, data: answer.data };
      if (!JSON.stringify(found).includes("UNASSIGNED") || Date.now() > deadline) return found;
    } catch (error) {
      const answer = error.response;
      if (answer === undefined) return { error: error.name };
      const said = JSON.stringify(answer.data);
      if (answer.status !== 409 || said.includes("exists") || Date.now() > deadline) {
        return { error: error.message, status: answer.status, data: answer.data };
      }
    }
    await pause();
  }
}

// Without the client: until the connector and its task are in this state.
async function reached(state) {
  const deadline = Date.now() + patienceMs;
  while (Date.now() < deadline) {
    const answer = await fetch(`${url}/connectors/${name}/status`);
    if (state === "gone" && answer.status === 404) return;
    if (answer.status === 200) {
      const found = await answer.json();
      const states = [found.connector.state, ...found.tasks.map((task) => task.state)];
      if (states.length === 2 && states.every((each) => each === state)) return;
    }
    await pause();
  }
  throw new Error(`${name} is not ${state}`);
}

async function tell() {
  const seen = [];
  for (const [step, action, state] of steps) {
    seen.push([step, await outcome(action)]);
    if (state) await reached(state);
  }
  process.stdout.write(JSON.stringify(seen));
}

tell();
