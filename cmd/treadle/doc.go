// Command treadle is the job server and its command line: treadle serve runs the server, the other commands talk to
// one. main.go runs the command of the arguments. Kong parses them into the structs of cli.go.
//
// # Adding a command
//
//  1. Make a file with the command's name. It has a struct with the flags, such as printCmd in print.go.
//  2. Add a field with a help tag to the struct commands (cli.go), and with a name tag if the command has another name
//     than the field. Its place is that of the command in the help.
//  3. Give the struct Run(c *cli, con *console) error. con has the standard streams. c.withAdmin and the helpers of
//     client.go connect to a server. Return badUsage for a wrong argument; exit.go has the exit codes.
//  4. Give it Help() string, if the help tag does not say enough. It stands beside the command.
//  5. A command that connects to no server, or speaks another protocol than Periodic, is in a list of usage.go, and
//     one that uses TREADLE_ADMIN is in topHelp of help.go.
//  6. Completion and the manual page follow from the struct (completion.go, man.go).
//  7. Say on a page of docs what a user can do with it. The commands of the pages run in a test.
//  8. go test ./cmd/treadle -run 'Help|Docs|Usage' names the lists that the command is missing from.
package main
