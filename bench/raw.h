/* raw.h - the peer of messages: a DEALER with some requests in flight and a
 * ROUTER that answers, over ZeroMQ and nothing else. One frame each way; those
 * of 16 KB and more are pooled and travel without a copy. There are two of it,
 * with ZeroMQ's own settings and with ours: the faster one counts. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <zmq.h>

#include "helper.h"
#include "net/zmq_context.h"

enum { RAW_BUFFERS = 16, RAW_COPIED_BELOW = 16 << 10 };
enum { RAW_PLAIN, RAW_TUNED, RAW_KINDS };
static const char *const raw_names[RAW_KINDS] = {
    "ZeroMQ DEALER and ROUTER",
    "ZeroMQ DEALER and ROUTER, I/O threads and malloc set as ours"};

typedef struct raw_spec {
    size_t size; /* of an answer */
    int kind;
} raw_spec;

typedef struct raw_buffer {
    void *data;
    _Atomic int busy;
} raw_buffer;

typedef struct raw_end {
    void *context, *socket;
    raw_buffer buffer[RAW_BUFFERS];
    size_t size; /* of each */
} raw_end;

static inline void raw_open(raw_end *e, int type, size_t size, int kind)
{
    int none = 0;

    e->context = zmq_ctx_new();
    if (kind == RAW_TUNED)
        fl_zmq_tune(e->context);
    e->socket = zmq_socket(e->context, type);
    e->size = size;
    zmq_setsockopt(e->socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(e->socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(e->socket, ZMQ_RCVHWM, &none, sizeof none);
    for (int i = 0; i < RAW_BUFFERS; i++) {
        e->buffer[i].data = aligned_alloc(64, (size + 63) / 64 * 64);
        memset(e->buffer[i].data, 1, size);
    }
}

static inline void raw_give(void *data, void *buffer)
{
    (void)data;
    atomic_store(&((raw_buffer *)buffer)->busy, 0);
}

/* The buffer that was used last, if it is free: it is in the cache. */
static inline raw_buffer *raw_take(raw_end *e)
{
    for (int i = 0;; i = (i + 1) % RAW_BUFFERS)
        if (!atomic_exchange(&e->buffer[i].busy, 1))
            return &e->buffer[i];
}

static inline void raw_send(raw_end *e)
{
    raw_buffer *b;
    zmq_msg_t m;

    if (e->size < RAW_COPIED_BELOW) {
        zmq_send(e->socket, e->buffer[0].data, e->size, 0);
        return;
    }
    b = raw_take(e);
    zmq_msg_init_data(&m, b->data, e->size, raw_give, b);
    must(zmq_msg_send(&m, e->socket, 0) >= 0, "raw: cannot send");
}

/* In a helper: answers, to whatever comes. */
static inline void raw_serve(int say, void *arg)
{
    const raw_spec *spec = arg;
    char address[128];
    size_t n = sizeof address;
    static raw_end e;

    raw_open(&e, ZMQ_ROUTER, spec->size, spec->kind);
    must(zmq_bind(e.socket, "tcp://127.0.0.1:*") == 0, "raw: cannot bind");
    zmq_getsockopt(e.socket, ZMQ_LAST_ENDPOINT, address, &n);
    helper_say(say, address);
    for (;;) {
        zmq_msg_t who, what;

        zmq_msg_init(&who);
        zmq_msg_init(&what);
        zmq_msg_recv(&who, e.socket, 0);
        zmq_msg_recv(&what, e.socket, 0);
        zmq_msg_close(&what);
        zmq_msg_send(&who, e.socket, ZMQ_SNDMORE);
        raw_send(&e);
    }
}

static inline void raw_connect(raw_end *e, const char *address, size_t size,
                               int kind)
{
    raw_open(e, ZMQ_DEALER, size, kind);
    must(zmq_connect(e->socket, address) == 0, "raw: cannot connect");
}

static inline void raw_receive(raw_end *e)
{
    zmq_msg_t m;

    zmq_msg_init(&m);
    must(zmq_msg_recv(&m, e->socket, 0) >= 0, "raw: cannot receive");
    zmq_msg_close(&m);
}

static inline void raw_close(raw_end *e)
{
    zmq_close(e->socket);
    zmq_ctx_term(e->context);
    for (int i = 0; i < RAW_BUFFERS; i++)
        free(e->buffer[i].data);
}

/* --- rounds of ours and of both kinds of peer ----------------------------- */

typedef struct raw_rounds {
    pairs of[RAW_KINDS];
} raw_rounds;

static inline void raw_round_begin(raw_rounds *r)
{
    pair_begin(&r->of[RAW_PLAIN]);
    r->of[RAW_TUNED].began = r->of[RAW_PLAIN].began;
    r->of[RAW_TUNED].machine = r->of[RAW_PLAIN].machine;
    r->of[RAW_TUNED].process = r->of[RAW_PLAIN].process;
}

static inline void raw_round_end(raw_rounds *r, double ours, double plain,
                                 double tuned)
{
    pair_end(&r->of[RAW_PLAIN], ours, plain);
    pair_end(&r->of[RAW_TUNED], ours, tuned);
}

static inline void raw_rounds_forget(raw_rounds *r)
{
    for (int k = 0; k < RAW_KINDS; k++)
        r->of[k].n = 0;
}

/* The line of the row, over the kind of peer that was faster in the median. */
static inline void raw_rounds_print(raw_rounds *r, bool at_most, const char *id,
                                    double floor_, double goal,
                                    const char *unit)
{
    pair plain = pairs_middle(&r->of[RAW_PLAIN]);
    pair tuned = pairs_middle(&r->of[RAW_TUNED]);
    bool higher = tuned.ours / tuned.peer > plain.ours / plain.peer;
    int k = higher == at_most ? RAW_TUNED : RAW_PLAIN;

    pairs_print(&r->of[k], id, floor_, goal, unit, raw_names[k]);
}
