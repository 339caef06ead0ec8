// Command treadle is the job server and its command line: `treadle serve` runs
// the server, the other commands talk to one.
package main

import "os"

func main() {
	os.Exit(run(calledAs(os.Args[0], os.Args[1:]), console{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
