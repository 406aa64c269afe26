// etcd's server, built from its released modules. `go install` of etcd's own command fails: its go.mod has replace
// directives. infra/etcd.py builds this.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
