// Package site is the play of a Disbatch site: three hosts, each with a server in memory and its node, share the fake
// of their database.
package site
