// Package web is the command interface of a Disbatch site (the original's DCI, disbatch-web): the REST routes of 4.0, 4.1 and
// before, and pages for people that work without JavaScript.
//
// It works on the store of loop/disbatch and knows nothing of execution nodes but their documents. What a request may hold of
// bodies, findings and replies, and how many are answered at once, is decided here (transit.go, found.go).
package web
