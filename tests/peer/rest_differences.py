"""Where our worker's answers differ from a Java worker's on purpose: names of requests, what differs, and why.

`docs/differences.md` says the same to people.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Difference(NamedTuple):
    """What differs (`aspects`) in the answers to the requests whose whole name matches `names`."""

    names: str
    aspects: frozenset[str]
    reason: str

    def covers(self, name: str) -> bool:
        return re.fullmatch(self.names, name) is not None


def _of(aspects: str, reason: str, *names: str) -> Difference:
    return Difference("|".join(names), frozenset(aspects.split()), reason)


# How an error of the HTTP server itself shows: a page for people, or nothing, with headers of its own.
_PAGE = "body content-type cache-control"
_READERS = "create|put|validate|level|offsets"
_NOT_READ = "|".join(
    (
        "empty",
        "blank",
        "half",
        "half a field",
        "no JSON",
        "an array",
        "null",
        "a text",
        "a number",
        "true",
        "two documents",
        "rubbish after it",
        "single quotes",
        "comments",
        "a comma too many",
        "NaN",
        "a leading zero",
        "no UTF-8",
        "a line feed in a text",
    )
)

_STRANGERS = r"http://bad\.example|http://good\.example\.org|null"
_NOT_LOGGED_IN = (
    "nobody|a wrong password|another user|no colon|no base64|another scheme|a scheme alone"
)

DIFFERENCES: tuple[Difference, ...] = (
    _of(
        "status body",
        "pages of other origins are refused, where a Java worker answers and leaves the rest to the browser",
        "origin: list",
        rf"origin ({_STRANGERS}): (list|absent)",
    ),
    _of(
        "status body content-type",
        "and so are their requests for paths that are not there",
        rf"origin ({_STRANGERS}): no path",
    ),
    _of(
        "status body content-type",
        "who somebody is comes before anything of a request is looked at",
        rf"({_NOT_LOGGED_IN}): (GET /connectors as HTML|PUT text)",
    ),
    _of(
        "status body",
        "and whether a worker has signed a request before its body",
        "internal: tasks that are no (list|JSON)",
    ),
    _of(
        "message",
        "what is wrong with a JSON document is said in the words of the library that reads it; the status is the same",
        rf"({_READERS}): ({_NOT_READ})",
        "(put|validate|level|offsets): (UTF-16|a byte order mark|fields twice)",
        "create: (no config|null config|nothing in it|config is a (list|text|number))",
        "create: (name is (a list|an object)|(list|object) in the config)",
        "create: (unknown field|tasks|upper case field)",
        "create: (unknown|empty|number as|boolean as|object as) state",
        "(put|validate): nested",
        r"loggers: PUT /admin/loggers/org\.example\.app\?list",
        "beat: patch (nested|a list|null)",
        "alter: (no list|text in the list|null in the list|unknown field|unknown field inside)",
        "alter: (partition is a text|offset is a number)",
        "settings: POST /connectors",
        "alice( in lower case)?: POST /connectors",
    ),
    _of(
        "message",
        "the connectors that exist are listed by name, without Java's description of a plugin, and without Java's exception",
        "create: (empty class|unknown class|class of something else)",
        "validate: (no such class|no class|nothing|nothing in it)",
        "beat: patch class",
    ),
    _of(
        "message",
        "a config is shown in the order in which it was sent, not in that of a Java map",
        "(create|put): no class",
    ),
    _of("message", "a rule between keys, in our own words", "create: checkpoints without syncs"),
    _of(
        "body",
        "null for a key that the connector defines is an error of that key",
        r"validate: null \(2\)",
    ),
    _of(
        _PAGE,
        "requests that the HTTP server refuses get a JSON error as all others do, not a page or nothing",
        r"paths: GET (/connectors//|//connectors)",
        r"paths: GET /connectors/(%00|a%01b|a%7Fb|a%0Ab|%zz|%|%FF)",
        "sent (json|''): .*",
    ),
    _of(
        f"status {_PAGE}",
        "names with a slash, a percent sign, a backslash or braces can be asked about; a Java worker refuses their paths",
        r"paths: GET /connectors/(a%2Fb|a%5Cb|a%25b|\{x\}|a\|b|%2e%2e|\.\.%2Fconnectors)",
        "(plugins|loggers): GET .*/a%2Fb.*",
        r"name '(a/b|per%cent|%2F|back\\\\slash)': (get|status|gone)",
    ),
    _of(
        f"status location {_PAGE}",
        "a connector with a slash in its name can be created by PUT",
        "put with a slash: create",
    ),
    _of("body", "and is there then", "put with a slash: list"),
    _of(
        "status cache-control",
        "and can be deleted, as can those with a percent sign or a backslash",
        "put with a slash: delete",
        r"name '(a/b|per%cent|%2F|back\\\\slash)': delete",
    ),
    _of(
        "location",
        "the address of a new connector is encoded so that it leads to it",
        "name '(a/b|per%cent|%2F|semi;colon)': create",
        "put with a semicolon: create",
    ),
    _of(
        "status location body",
        "braces in a name make a Java worker create the connector and answer 500",
        r"name '(\{braces\}|braces\{\})': create",
    ),
    _of(
        "status body content-type",
        "a method that HTTP does not know is refused before it is looked at",
        "methods: CONNECTORS /connectors",
    ),
    _of(
        "body",
        "loggers are those of this program",
        "paths: GET /admin/loggers/",
        "loggers: GET /admin/loggers",
    ),
    _of(
        "status body",
        "an empty level is as wrong as any other that is none (404, where a Java worker answers 500)",
        r"loggers: PUT /admin/loggers/org\.example\.app\?0",
    ),
    _of(
        "status body",
        "a task that a stopped connector had is unknown; a Java worker looks for its owner in vain (409)",
        "beat stopped: POST /connectors/beat/tasks/0/restart",
    ),
    _of(
        "status body",
        "credentials that cannot be read are no credentials (401, where a Java worker answers 500)",
        "no base64: GET (/|/health|/connectors|/connectors/nope)",
        r"no base64: (POST /connectors|PUT /admin/loggers/org\.example\.app)",
    ),
    _of("status", "the same without a body", "no base64: HEAD /connectors"),
    _of(f"status {_PAGE}", "the same to OPTIONS", "no base64: OPTIONS /connectors"),
    _of(
        "body",
        "fields of an offset that MirrorMaker does not read are not kept: ours stand beside it",
        "alter: more fields, seen",
    ),
)
