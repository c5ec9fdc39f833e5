/* feed_internal.h - a subscriber's state, shared by feed_client.c (questions
 * and answers), feed_batch.c (what is in an answer) and feed_offset.c. */
#pragma once

#include "base/clock.h"
#include "ps/bucket_map.h"
#include "ps/feed/feed_client.h"

/* A server as it was last heard of. */
typedef struct fl_feed_server {
    bool known;
    uint64_t request; /* of its hello */
    int64_t hello_ms; /* when it is said hello, if it is not known */
    int64_t owes_ms;  /* an answer, since then, of the awake clock; -1: none */
    uint64_t job;     /* with its run */
    uint32_t peer, generation;
    int n_lane, first; /* 0: never known; among all lanes */
} fl_feed_server;

typedef struct fl_feed_lane {
    int server;
    fl_feed_position position;
    uint64_t request;
    bool asks;
    int64_t sent_ms, due_ms;
    fl_packet *packet;    /* an answer that was not handed out; NULL: none */
    bool over, confirmed; /* it was its last answer; that is said to it */
} fl_feed_lane;

/* What there is, from a server's text. */
typedef struct fl_feed_item {
    char *name;
    int64_t n; /* a table's dim; a parameter's floats */
} fl_feed_item;

struct fl_feed_client {
    fl_feed_options o;
    fl_feed_host host;
    fl_awake awake; /* of the peer deadline */
    uint64_t last_request;
    fl_feed_server *server;
    fl_feed_lane *lane;
    int n_lane; /* 0 until all servers have been known */
    int next;   /* lane that is looked at first */
    fl_bucket_map map;
    char *text; /* of the first server: what there is */
    fl_feed_item *table, *param;
    int n_table, n_param;
    fl_feed_position *resumed; /* of lanes, from an offset */
    int n_resumed;
    fl_error error;
    fl_msg msg;

    /* the batch that was handed out */
    fleet_feed_part *part;
    size_t part_capacity;
    char *copy; /* columns, aligned */
    size_t copy_capacity;
};

/* --- feed_batch.c --------------------------------------------------------- */

/* Read what a server says there is. */
fleet_status fl_feed_read_items(fl_feed_client *c, const char *text);

/* Is c->msg an answer that brings something of what there is? */
fleet_status fl_feed_check_answer(const fl_feed_client *c);

/* c->msg, which was checked, as a batch of that lane. */
fleet_status fl_feed_read_batch(fl_feed_client *c, int lane,
                                fleet_feed_batch *batch);
fl_feed_answer fl_feed_answer_of(const fl_msg *msg);
