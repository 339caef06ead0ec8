// Package disbatch is Disbatch 4 on a MongoDB: the execution node, the task runner, and
// the store that both and the command interface work on. The database is the only message
// bus, so these replace the original's programs one at a time. It follows the Disbatch 4
// design text of April 2016 and release 4.000 of 2018, whose documents differ: a queue
// document says by its field constructor or plugin which of the two it is, and is written
// in its own dialect.
package disbatch
