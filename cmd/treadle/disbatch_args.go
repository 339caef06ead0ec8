package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// calledAs returns the arguments for the name by which the program is called. A link called task_runner is the task
// runner of Disbatch, so that a configuration of the original can name it.
func calledAs(program string, args []string) []string {
	if filepath.Base(program) == "task_runner" {
		return append([]string{"disbatch", "task"}, args...)
	}
	return args
}

// disbatchArgs moves options that stand before a disbatch command behind it, because the programs of the original take
// options first. --task without a command means the command disbatch task, because a node of the original calls its
// task runner with --task.
func disbatchArgs(model *kong.Application, args []string) []string {
	given := func(name string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && given("--task") {
		args = append([]string{"disbatch"}, args...)
	}
	if len(args) < 2 || args[0] != "disbatch" {
		return args
	}
	if at := commandAt(model, args); at > 0 {
		args = slices.Concat([]string{"disbatch", args[at]}, args[1:at], args[at+1:])
	} else if strings.HasPrefix(args[1], "-") && given("--task") {
		args = slices.Insert(slices.Clone(args), 1, "task")
	}
	if args[1] == "task" {
		return withValue(args, "--gfs", "1")
	}
	return args
}

// commandAt returns the index of the disbatch command behind options; 0: none.
func commandAt(model *kong.Application, args []string) int {
	var node *kong.Node
	for _, child := range model.Children {
		if child.Name == "disbatch" {
			node = child
		}
	}
	takesValue := make(map[string]bool)
	for _, n := range append([]*kong.Node{model.Node}, node.Children...) {
		for _, flag := range n.Flags {
			takesValue["--"+flag.Name] = !flag.IsBool()
			takesValue["-"+string(flag.Short)] = !flag.IsBool()
		}
	}
	for i := 1; i < len(args); i++ {
		switch {
		case takesValue[args[i]]:
			i++
		case strings.HasPrefix(args[i], "-"):
		case slices.ContainsFunc(node.Children, func(c *kong.Node) bool { return c.Name == args[i] }):
			return i
		default:
			return 0
		}
	}
	return 0
}

// withValue gives a flag without a value the value.
func withValue(args []string, flag, value string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if a == flag && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			args[i] = flag + "=" + value
		}
	}
	return args
}
