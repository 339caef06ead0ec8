// Package web is the command interface of a Disbatch site (the original's DCI, disbatch-web): the REST routes of 4.0,
// 4.1 and before, and pages that work without JavaScript.
//
// It works on loop/disbatch/store and knows only the documents of execution nodes. It limits how many requests
// are answered at once, and the memory of bodies, search results and replies (bounded.go, found.go).
package web
