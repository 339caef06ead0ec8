/* A dwork worker as the original's: one REQ that steals a task and completes it, again and again, until it is told Exit.
   Usage: req ADDRESS NAME. Prints the number of tasks; ends with an error at a reply that is none. */

#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { STEAL = 1, COMPLETE = 2, TRANSFER = 3, NOT_FOUND = 5, OK = 6, EXIT = 7 };

static int fail(const char *what) {
  fprintf(stderr, "req: %s: %s\n", what, zmq_strerror(zmq_errno()));
  return 1;
}

/* put appends field number with a short text. */
static size_t put(char *out, int number, const char *text, size_t n) {
  out[0] = (char)(number << 3 | 2);
  out[1] = (char)n;
  memcpy(out + 2, text, n);
  return n + 2;
}

int main(int count, char **args) {
  if (count != 3 || strlen(args[2]) > 60) return 2;
  void *context = zmq_ctx_new(), *hub = zmq_socket(context, ZMQ_REQ);
  if (hub == NULL || zmq_connect(hub, args[1])) return fail("cannot connect");
  char steal[128] = {1 << 3, STEAL}, complete[256], task[192], in[1024];
  size_t stealing = 2 + put(steal + 2, 6, args[2], strlen(args[2]));
  for (long done = 0;;) {
    if (zmq_send(hub, steal, stealing, 0) < 0) return fail("cannot steal");
    int size = zmq_recv(hub, in, sizeof in, 0);
    if (size == 2 && in[1] == EXIT) {
      printf("%ld\n", done);
      return 0;
    }
    if (size == 2 && in[1] == NOT_FOUND) continue;
    /* type, then one task: its header, then its name */
    if (size < 7 || size > (int)sizeof in || in[1] != TRANSFER || in[2] != (2 << 3 | 2) || in[4] != (1 << 3 | 2) || in[5] < 1 || in[5] > 100)
      return fail("no task");
    size_t n = put(task, 1, in + 6, (size_t)in[5]);
    n += put(task + n, 2, "req", 3);
    complete[0] = 1 << 3;
    complete[1] = COMPLETE;
    n = 2 + put(complete + 2, 2, task, n);
    n += put(complete + n, 6, args[2], strlen(args[2]));
    if (zmq_send(hub, complete, n, 0) < 0) return fail("cannot complete");
    if (zmq_recv(hub, in, sizeof in, 0) != 2 || in[1] != OK) return fail("not completed");
    done++;
  }
}
