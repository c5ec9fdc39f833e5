/* wire_kit.h - what stands between two processes and listens: a proxy that
 * passes on what both sides say, and keeps it; and a stranger who speaks
 * ZeroMQ's protocol by hand. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one side of one connection has said, or all of both sides. */
typedef struct wire_record {
    char *bytes;
    size_t n, capacity;
} wire_record;

typedef struct wire {
    int port;               /* where it listens, on 127.0.0.1 */
    wire_record first, all; /* said by the first client; by all and to all */
    int64_t spoil_at;       /* the byte of what the first client says of which a
                               bit is changed on the way; -1: none, or done */
    int64_t repeat_at; /* what the first client says from this byte on, until
                               the proxy reads again, is said twice; alike */
    /* the kit's */
    int listener, to_port;
    pthread_t thread;
    atomic_bool stop;
} wire;

/* Connections to its port go on to another one of 127.0.0.1. */
void wire_open(wire *w, int to_port);

/* The same in two steps: what is forked between them comes from a process of
 * one thread, as ThreadSanitizer wants it. */
void wire_listen(wire *w, int to_port);
void wire_start(wire *w);

/* No more is passed on; what was said stays, until wire_done(). */
void wire_close(wire *w);
void wire_done(wire *w);
bool wire_has(const wire *w, const void *bytes, size_t n);

/* A connection to a port of 127.0.0.1; it may say what it likes, and who hangs
 * up on it is in his right. */
int wire_connect(int port);
void wire_say(int fd, const void *bytes, size_t n);
/* As a DEALER of ZMTP 3.0 without keys: greeting and first command, which has
 * the name that it wants, of up to 200 bytes. */
void wire_greet(int fd);
void wire_greet_as(int fd, const void *name, size_t size);
/* Read the other side's; only then may messages follow. */
void wire_hear_greeting(int fd);
/* Exactly n bytes; fails the test if they do not come. */
void wire_hear(int fd, void *to, size_t n);
/* A frame of a message. */
void wire_say_frame(int fd, const void *bytes, size_t n, bool more);
/* Until the other side has hung up; fails the test if it does not. */
void wire_hear_end(int fd);
