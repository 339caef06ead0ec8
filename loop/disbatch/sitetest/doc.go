// Package sitetest makes Disbatch sites for the tests of the store, the node and the command interface: a database with
// a configuration, queues, tasks and invalid documents. The database is a fake (mongotest), or a real one when
// TREADLE_TEST_MONGODB names it. Only tests import it.
package sitetest
