/* A dwork client in C over libzmq. Usage: dwork ADDRESS TASKS. A DEALER creates the tasks in blocks of 16, all under
   way at once; a REQ steals and completes them one by one until the hub says Exit. Prints how many it did; ends with
   an error at the first reply that is not as the messaging API says. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { CREATE = 0, STEAL = 1, COMPLETE = 2, TRANSFER = 3, OK = 6, EXIT = 7 };
enum { BLOCK = 16, PATIENCE = 20000, NAME = 32 };

static void fail(const char *what) {
  fprintf(stderr, "dwork: %s: %s\n", what, zmq_strerror(zmq_errno()));
  exit(1);
}

static void *dial(void *context, int type, const char *address) {
  int patience = PATIENCE, linger = 0, heartbeat = 50, timeout = 1000;
  void *s = zmq_socket(context, type);
  if (s == NULL || zmq_setsockopt(s, ZMQ_RCVTIMEO, &patience, sizeof patience) ||
      zmq_setsockopt(s, ZMQ_SNDTIMEO, &patience, sizeof patience) || zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof linger) ||
      zmq_setsockopt(s, ZMQ_HEARTBEAT_IVL, &heartbeat, sizeof heartbeat) ||
      zmq_setsockopt(s, ZMQ_HEARTBEAT_TIMEOUT, &timeout, sizeof timeout) || zmq_connect(s, address))
    fail("cannot connect");
  return s;
}

/* put appends field 1..15 with a short string. */
static size_t put(char *out, int number, const char *value) {
  size_t n = strlen(value);
  out[0] = (char)(number << 3 | 2);
  out[1] = (char)n;
  memcpy(out + 2, value, n);
  return n + 2;
}

static size_t put_task(char *out, const char *name) {
  char task[2 * NAME];
  size_t n = put(task, 1, name);
  n += put(task + n, 2, "c");
  out[0] = 2 << 3 | 2;
  out[1] = (char)n;
  memcpy(out + 2, task, n);
  return n + 2;
}

static size_t put_type(char *out, int type) {
  out[0] = 1 << 3;
  out[1] = (char)type;
  return 2;
}

/* get receives one frame, NUL-terminated. */
static int get(void *s, char *in, int size) {
  int n = zmq_recv(s, in, (size_t)size - 1, 0);
  if (n < 0) fail("no reply");
  if (n >= size) fail("a reply too large");
  in[n] = 0;
  return n;
}

int main(int count, char **args) {
  if (count != 3) return 2;
  void *context = zmq_ctx_new();
  void *dealer = dial(context, ZMQ_DEALER, args[1]), *req = dial(context, ZMQ_REQ, args[1]);
  int tasks = atoi(args[2]), blocks = 0, done = 0;
  char message[BLOCK * 3 * NAME], in[256], name[NAME];

  for (int i = 0; i < tasks; blocks++) {
    size_t n = put_type(message, CREATE);
    for (int end = i + BLOCK; i < tasks && i < end; i++) {
      snprintf(name, sizeof name, "c-%d", i);
      n += put_task(message + n, name);
    }
    if (zmq_send(dealer, "", 0, ZMQ_SNDMORE) < 0 || zmq_send(dealer, message, n, 0) < 0) fail("cannot create");
  }
  for (; blocks > 0; blocks--)
    if (get(dealer, in, sizeof in) != 0 || get(dealer, in, sizeof in) != 2 || in[1] != OK) fail("not created");

  for (;; done++) {
    size_t n = put_type(message, STEAL);
    n += put(message + n, 6, "c-worker");
    if (zmq_send(req, message, n, 0) < 0) fail("cannot steal");
    int size = get(req, in, sizeof in);
    if (size == 2 && in[1] == EXIT) break;
    /* type, then one task: its header, then its name */
    if (size < 6 || in[1] != TRANSFER || in[2] != (2 << 3 | 2) || in[4] != (1 << 3 | 2)) fail("not a task");
    snprintf(name, sizeof name, "%.*s", in[5], in + 6);
    char want[NAME];
    snprintf(want, sizeof want, "c-%d", done);
    if (strcmp(name, want)) fail("the wrong task");
    n = put_type(message, COMPLETE);
    n += put_task(message + n, name);
    n += put(message + n, 6, "c-worker");
    if (zmq_send(req, message, n, 0) < 0) fail("cannot complete");
    if (get(req, in, sizeof in) != 2 || in[1] != OK) fail("not completed");
  }
  printf("%d\n", done);
  zmq_close(dealer);
  zmq_close(req);
  zmq_ctx_term(context);
  return done == tasks ? 0 : 1;
}
