// Serves franz-go's kfake, a Kafka cluster in memory, on a port of 127.0.0.1 until it is killed.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DefaultNumPartitions(1))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	select {}
}
