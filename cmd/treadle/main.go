package main

import (
	"os"
	"path/filepath"
)

// main runs the command of the arguments. A link called periodicd takes the arguments and variables of the original
// server.
func main() {
	con, args := console{in: os.Stdin, out: os.Stdout, err: os.Stderr}, calledAs(os.Args[0], os.Args[1:])
	if filepath.Base(os.Args[0]) == originalName {
		var err error
		if args, err = periodicdArgs(args, os.Getenv); err != nil {
			os.Exit(report(con, err))
		}
		_ = os.Unsetenv(hostVariable) // periodicdArgs has read them
		_ = os.Unsetenv(pathVariable)
	}
	os.Exit(run(args, con))
}
