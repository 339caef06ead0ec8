"""A dwork client that lives through restarts of the hub: libzmq connects again by itself, and what got no answer is
asked again.

Usage: dwork_restart.py ADDRESS REQ|DEALER TASKS. It creates a chain of tasks and does them one by one, printing each
when it is complete. It ends when all are, and with an error when one comes that is complete or whose turn it is not."""

import sys
import time

import zmq

from dwork import CREATE, COMPLETE, EXIT, LOOKUP, NOT_FOUND, OK, STEAL, TRANSFER, query, read, task

PATIENCE = 25  # seconds for any request, however often it is sent
AGAIN = 500  # ms without an answer after which it is sent again
PAUSE = 20  # ms between two questions that are answered but lead nowhere
BLOCK = 50  # tasks made at a time
ME = "phoenix"


class Hub:
    """One socket for the whole life of the program."""

    def __init__(self, context, kind, address):
        self.socket = context.socket(kind)
        self.dealer = kind == zmq.DEALER
        self.socket.linger = 0
        self.socket.reconnect_ivl = 10
        self.socket.reconnect_ivl_max = 100
        if not self.dealer:
            self.socket.req_relaxed = self.socket.req_correlate = 1  # it may ask again
        self.socket.connect(address)
        self.poller = zmq.Poller()
        self.poller.register(self.socket, zmq.POLLIN)
        self.asked = self.lost = 0

    def ask(self, *args, **kinds):
        """Returns an answer and whether the question was sent more than once: the first one may have been heard."""
        question = query(*args, **kinds)
        self.asked += 1
        number = b"%d" % self.asked
        for attempt in range(PATIENCE * 1000 // AGAIN):
            self.socket.send_multipart([number, b"", question] if self.dealer else [question])
            while self.poller.poll(AGAIN):
                answer = self.socket.recv_multipart()
                if not self.dealer or answer[0] == number:  # else it is that to an older one
                    return read(answer[-1]), attempt > 0
            self.lost += 1
        raise AssertionError(f"no answer within {PATIENCE} s")


def main(address, kind, count):
    context = zmq.Context()
    hub = Hub(context, getattr(zmq, kind), address)
    names = [f"{kind}-{i}" for i in range(count)]
    for i in range(0, count, BLOCK):
        block = [task(names[k], *names[max(0, k - 1):k]) for k in range(i, min(i + BLOCK, count))]
        while hub.ask(CREATE, block)[0][0] == EXIT:  # it is being stopped
            time.sleep(PAUSE / 1000)
    done = 0
    while done < count:
        (answer, stolen, _, _), again = hub.ask(STEAL, location=ME, n=1)
        if answer == NOT_FOUND and again:
            hub.ask(EXIT, location=ME)  # the lost answer may have held the task: give it back
            continue
        if answer == EXIT:
            time.sleep(PAUSE / 1000)
            continue
        assert answer == TRANSFER and stolen == [names[done]], (answer, stolen, done)
        while True:
            (answer, missing, _, _), again = hub.ask(COMPLETE, [task(names[done])], location=ME)
            if answer == OK or answer == NOT_FOUND and again and missing == [names[done]]:
                break  # the answer that was lost was OK
            assert answer == EXIT, (answer, missing)
            time.sleep(PAUSE / 1000)
        print(names[done], flush=True)
        done += 1
    (answer, _, text, ready), _ = hub.ask(OK)
    assert (answer, ready) == (OK, 0) and text.startswith("dhub: 0 active"), text
    assert hub.ask(LOOKUP, name=names[0])[0][0] == NOT_FOUND
    hub.socket.close()
    context.term()
    print(f"{hub.lost} answers were lost")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
