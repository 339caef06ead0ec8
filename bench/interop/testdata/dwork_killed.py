"""Workers of the original's kind: strict REQ sockets that ask once and wait for the reply, however long it takes.

Usage: dwork_killed.py ADDRESS WORKERS. Each steals and completes one task after the other, prints each when it is told
so, and ends at Exit. A reply to a Steal that is no task, or to a Complete, whatever it says, is none to worry about."""

import sys
import threading
import time

import zmq

from dwork import COMPLETE, EXIT, STEAL, TRANSFER, query, read, task


def work(context, address, me):
    socket = context.socket(zmq.REQ)
    socket.linger = 0
    socket.connect(address)

    def ask(*args, **kinds):
        socket.send(query(*args, **kinds))
        return read(socket.recv())

    while True:
        answer, stolen, _, _ = ask(STEAL, location=me)
        if answer == EXIT:
            break
        for name in stolen if answer == TRANSFER else ():
            ask(COMPLETE, [task(name)], location=me)
            sys.stdout.write(name + "\n")  # at once, whatever the others print
            sys.stdout.flush()
        if answer != TRANSFER:
            time.sleep(0.01)
    socket.close()


def main(address, count):
    context = zmq.Context()
    workers = [threading.Thread(target=work, args=(context, address, f"w{i}")) for i in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    context.term()


main(sys.argv[1], int(sys.argv[2]))
