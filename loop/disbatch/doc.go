// Package disbatch is what the programs of a Disbatch 4 site share: the store, which is the site's MongoDB, the documents in it,
// and the configuration, config.json. The execution node and the task runner are in loop/disbatch/node, the command interface is
// in loop/disbatch/web. The database is the only message bus between them, so each replaces the original's program by itself.
//
// This room imports neither of them and calls nobody above it, save functions that are handed to it. It knows the names of
// nodes and of the users of the database, and nothing of processes, slots, requests or pages. Queries that only one of the two
// makes are there, on Store.Database; claiming and ending tasks is the node's. What all queries are made of is in query.go, and
// how values are read as the originals wrote them in value.go.
//
// Documents follow the design text of April 2016 or release 4.000 of 2018, which differ (see Schema): a queue document says
// by its field constructor or plugin which of the two it is, and is written in its own dialect.
package disbatch
