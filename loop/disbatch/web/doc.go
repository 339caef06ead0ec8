// Package web is the command interface of a Disbatch site (the original's DCI, disbatch-web): the REST routes of 4.0,
// 4.1 and before, and pages that work without JavaScript.
//
// A function that carries out a request returns its result or a refusal (reply.go). Routes encode either as JSON, those
// from before version 4 in a form of their own (legacy.go), and pages show it.
//
// It works on loop/disbatch/store and knows only the documents of execution nodes. It limits how many requests are
// answered at once, and the memory of bodies, search results and replies (bounded.go, find.go).
package web
