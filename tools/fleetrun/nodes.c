/* nodes.c - a socket and time for node_table.c, and the side of a node
 * that asks. */
#define _GNU_SOURCE
#include "nodes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "net/roster_link.h"
#include "keeper.h"
#include "node_table.h"
#include "port.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

enum {
    MOST_LINES = 100, /* about refusals */
    ASK_MS = 100,     /* a node says again what it wants to know */
    TRY_MS = 500,     /* and tries to serve, while nobody does */
    LINGER_MS = 2000  /* of the last words */
};

typedef struct node_ports {
    char host[FL_ROSTER_TEXT];
    int *port;
} node_ports;

struct run_nodes {
    const run_options *options;
    int alive, signal;
    bool serves, has_heard;
    bool is_over;    /* the one that serves has said so, or is silent */
    run_route route; /* to --master */
    fl_roster_link link;
    fl_awake awake;
    int64_t asked_ms, tried_ms, began_ms, heard_ms;
    fl_roster_message own; /* what this node says */
    char *said;            /* own.rest */
    run_node_table table;  /* of the one that serves */
    fl_peer *peer;         /* of the table's nodes, by place */
    int n_refused;
    node_ports *all;              /* by rank, once agreed */
    char unable[FL_ROSTER_WORDS]; /* why this node does not serve */
};

static int ports_of_a_node(const run_options *o)
{
    return o->n_server + o->n_worker;
}

static int64_t now_ms(run_nodes *n)
{
    return fl_awake_at(&n->awake, fl_now_ms());
}

/* --- waiting -------------------------------------------------------------- */

/* Until something has come, or it is time to ask again. */
static fleet_status wait_a_while(run_nodes *n)
{
    static const struct timespec none = {0};
    struct pollfd alive = {.fd = n->alive, .events = POLLIN};
    sigset_t ends = run_keeper_signals();
    int s;

    FL_TRY(fl_roster_link_wait(&n->link, ASK_MS));
    sigdelset(&ends, SIGCHLD);
    s = sigtimedwait(&ends, NULL, &none);
    if (s > 0) {
        n->signal = s;
        return fl_fail(FLEET_ESTATE, "ended by SIG%s", sigabbrev_np(s));
    }
    if (poll(&alive, 1, 0) > 0)
        return fl_fail(FLEET_ESTATE, "fleetrun was killed");
    return FLEET_OK;
}

/* --- the node that serves ------------------------------------------------- */

static fleet_status answer_node(run_nodes *n, int place, const fl_peer *to)
{
    fl_roster_message answer;
    fl_text list = {0};
    fleet_status status =
        run_node_table_answer(&n->table, place, &answer, &list);

    if (status == FLEET_OK)
        status = fl_roster_link_send(&n->link, to, &answer);
    fl_text_done(&list);
    return status;
}

static fleet_status take_message(run_nodes *n, const fl_roster_message *m,
                                 const fl_peer *from)
{
    const run_node_table *t = &n->table;
    const int before = t->n;
    int place;

    if (!fl_roster_link_lets_in(&n->link, from))
        return FLEET_OK;
    place = run_node_table_take(&n->table, m, now_ms(n));
    if (place >= 0)
        n->peer[place] = *from;
    else if (n->n_refused++ < MOST_LINES)
        fprintf(stderr, "fleetrun: refused a node: %s\n", t->refused);
    if (t->n > before)
        fprintf(stderr, "fleetrun: node %s has come: %d of %d\n",
                t->node[place].host, t->n, t->n_node);
    return answer_node(n, place, from);
}

static fleet_status take_messages(run_nodes *n)
{
    fl_roster_message m;
    fl_peer from;
    char *text;

    for (;;) {
        fleet_status status =
            fl_roster_link_receive(&n->link, &from, &m, &text);

        if (status != FLEET_OK || !text)
            return status;
        status = take_message(n, &m, &from);
        fl_free(text);
        FL_TRY(status);
    }
}

/* Nobody has to ask to hear what has changed. */
static void answer_all(run_nodes *n)
{
    for (int i = 1; i < n->table.n; i++)
        if (!n->table.node[i].is_gone)
            answer_node(n, i, &n->peer[i]);
}

static fleet_status serve_until(run_nodes *n, run_nodes_phase phase)
{
    while (n->table.phase < phase) {
        run_nodes_phase before = n->table.phase;

        FL_TRY(wait_a_while(n));
        FL_TRY(take_messages(n));
        run_node_table_tick(&n->table, now_ms(n));
        if (n->table.phase != before)
            answer_all(n);
    }
    if (n->table.phase == RUN_NODES_FAILED)
        return fl_fail(FLEET_EPEER, "%s", n->table.words);
    return FLEET_OK;
}

/* Can this node serve? It cannot if --master is another machine's address, or
 * somebody has the port. A listening socket, or -1. */
static int bind_master(run_nodes *n)
{
    int port = n->route.port, fd = -1;

    if (fl_address_open(n->route.to, &port, true, &fd) == FLEET_OK)
        return fd;
    snprintf(n->unable, sizeof n->unable, "%s", fleet_last_error());
    if (fd >= 0)
        close(fd);
    return -1;
}

static void name_master(const run_nodes *n, fl_address address)
{
    snprintf(address, sizeof(fl_address), "tcp://%.100s:%d", n->route.to,
             n->route.port);
}

static fleet_status begin_to_serve(run_nodes *n, int fd)
{
    const run_options *o = n->options;
    fl_address address;

    fl_roster_link_close(&n->link, 0);
    name_master(n, address);
    FL_TRY(fl_roster_link_listen(&n->link, address, o->keys, fd, false));
    n->serves = true;
    fprintf(stderr, "fleetrun: serves --master %s and waits for %d nodes\n",
            o->master, o->n_node);
    n->peer = fl_alloc_array((size_t)o->n_node, sizeof *n->peer);
    if (!n->peer)
        return FLEET_ENOMEM;
    return run_node_table_open(&n->table, &n->own, o->n_node,
                               ports_of_a_node(o), now_ms(n), o->connect_ms,
                               o->peer_ms);
}

/* --- a node that asks ----------------------------------------------------- */

/* Any worker's key is good; a node need not have all. */
static fleet_status connect_to_master(run_nodes *n)
{
    const run_options *o = n->options;
    const int first = o->node < 0 ? 0 : o->node * o->n_worker;
    const int end = o->node < 0 ? o->n_node * o->n_worker : first + 1;

    fl_keys *keys = NULL;
    fleet_status status = o->keys ? FLEET_ENOENT : FLEET_OK;
    fl_address address;

    for (int i = first; i < end && status == FLEET_ENOENT; i++)
        status = fl_keys_read(&keys, o->keys, false, i);
    FL_TRY(status);
    name_master(n, address);
    return fl_roster_link_connect(&n->link, address, keys);
}

/* A line of START: host, ports. */
static fleet_status read_node(run_nodes *n, int rank, char *line)
{
    const int n_port = ports_of_a_node(n->options);
    char *end = strchr(line, ' ');
    node_ports *at = &n->all[rank];

    at->port = fl_alloc_array((size_t)n_port, sizeof *at->port);
    if (!at->port)
        return FLEET_ENOMEM;
    for (int i = 0; i < n_port && end; i++) {
        at->port[i] = (int)strtol(end, &end, 10);
        if (at->port[i] < 1 || at->port[i] > 65535)
            end = NULL;
    }
    line[strcspn(line, " ")] = 0;
    fl_roster_message_set(at->host, line);
    if (!end)
        return fl_fail(FLEET_EFORMAT, "node %d has no %d ports", rank, n_port);
    return FLEET_OK;
}

static fleet_status read_all(run_nodes *n, const char *list)
{
    char *copy = fl_strdup(list), *at = copy, *line;
    fleet_status status = copy ? FLEET_OK : FLEET_ENOMEM;

    n->all = fl_alloc_array((size_t)n->options->n_node, sizeof *n->all);
    if (!n->all)
        status = FLEET_ENOMEM;
    for (int i = 0; status == FLEET_OK && i < n->options->n_node; i++) {
        line = strsep(&at, "\n");
        status = line ? read_node(n, i, line)
                      : fl_fail(FLEET_EFORMAT, "node %d is missing", i);
    }
    fl_free(copy);
    return status;
}

static fleet_status take_answer(run_nodes *n, const fl_roster_message *m,
                                bool *is_done)
{
    const char *master = n->options->master;

    if (!n->has_heard)
        fprintf(stderr, "fleetrun: --master %s has answered\n", master);
    n->has_heard = true;
    n->heard_ms = now_ms(n);
    n->is_over = m->kind == FL_ROSTER_REFUSED || m->kind == FL_ROSTER_FAILED;
    if (m->kind == FL_ROSTER_REFUSED)
        return fl_fail(FLEET_EINVAL, "--master %s refuses this node: %s",
                       master, m->rest);
    if (m->kind == FL_ROSTER_FAILED)
        return fl_fail(FLEET_EPEER, "--master %s: %s", master, m->rest);
    if (m->kind == FL_ROSTER_RANK && n->own.kind == FL_ROSTER_JOIN) {
        if (m->rank < 1 || m->rank >= n->options->n_node)
            return fl_fail(FLEET_EFORMAT,
                           "--master %s: expected node 1 to %d, got %d", master,
                           n->options->n_node - 1, m->rank);
        n->own.rank = m->rank;
        *is_done = true;
    } else if (m->kind == FL_ROSTER_START && n->own.kind == FL_ROSTER_READY) {
        *is_done = true;
        return read_all(n, m->rest);
    }
    return FLEET_OK;
}

static fleet_status take_answers(run_nodes *n, bool *is_done)
{
    fl_roster_message m;
    char *text;

    while (!*is_done) {
        fleet_status status = fl_roster_link_receive(&n->link, NULL, &m, &text);

        if (status != FLEET_OK || !text)
            return status;
        status = take_answer(n, &m, is_done);
        fl_free(text);
        FL_TRY(status);
    }
    return FLEET_OK;
}

static fleet_status check_silence(run_nodes *n)
{
    const run_options *o = n->options;
    const int64_t now = now_ms(n);

    n->is_over = n->has_heard && now - n->heard_ms > o->peer_ms;
    if (n->is_over)
        return fl_fail(FLEET_EPEER,
                       "the node that serves --master %s has said nothing for "
                       "%d ms (FLEET_PEER_DEADLINE_MS)",
                       o->master, o->peer_ms);
    if (n->has_heard || now - n->began_ms <= o->connect_ms)
        return FLEET_OK;
    return fl_fail(FLEET_ETIMEDOUT,
                   "no fleetrun has answered at --master %s within %d ms "
                   "(FLEET_CONNECT_DEADLINE_MS): is it started on that "
                   "machine, with %s? This node cannot serve it: %s",
                   o->master, o->connect_ms,
                   o->keys ? "keys of the same folder" : "--insecure, too",
                   *n->unable ? n->unable : "--node_rank is not 0");
}

/* Ask until answered. While nobody answers, a node that may serve tries to. */
static fleet_status ask(run_nodes *n)
{
    const bool may_serve =
        n->own.kind == FL_ROSTER_JOIN && n->options->node < 1;
    bool is_done = false;

    while (!is_done) {
        const int64_t now = now_ms(n);

        if (may_serve && !n->has_heard && now - n->tried_ms >= TRY_MS) {
            int fd = bind_master(n);

            n->tried_ms = now;
            if (fd >= 0)
                return begin_to_serve(n, fd);
        }
        if (!n->link.socket)
            FL_TRY(connect_to_master(n));
        if (now - n->asked_ms >= ASK_MS) {
            FL_TRY(fl_roster_link_send(&n->link, NULL, &n->own));
            n->asked_ms = now;
        }
        FL_TRY(wait_a_while(n));
        FL_TRY(take_answers(n, &is_done));
        FL_TRY(check_silence(n));
    }
    return FLEET_OK;
}

/* --- both ----------------------------------------------------------------- */

static void set_field(run_nodes *n, fl_roster_field field, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    fl_roster_message_set(n->own.field[field], text);
}

static const char *name_program(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static void introduce(run_nodes *n)
{
    const run_options *o = n->options;
    const char *pod = getenv("POD_IP");

    n->own = (fl_roster_message){
        .kind = FL_ROSTER_JOIN, .rank = o->node, .rest = ""};
    snprintf(n->own.id, sizeof n->own.id, "%s", o->word);
    fl_roster_message_set(n->own.host, o->host       ? o->host
                                       : pod && *pod ? pod
                                                     : n->route.from);
    fl_roster_message_set(
        n->own.field[FL_ROSTER_VERSION],
        TEXT(FLEET_VERSION_MAJOR) "." TEXT(FLEET_VERSION_MINOR) "." TEXT(
            FLEET_VERSION_PATCH));
    fl_roster_message_set(n->own.field[FL_ROSTER_JOB], o->job);
    fl_roster_message_set(n->own.field[FL_ROSTER_PROGRAM],
                          name_program(o->command[0]));
    set_field(n, FL_ROSTER_NODES, o->n_node);
    set_field(n, FL_ROSTER_SERVERS, o->n_server);
    set_field(n, FL_ROSTER_WORKERS, o->n_worker);
    set_field(n, FL_ROSTER_REPLICAS, o->replicas);
    set_field(n, FL_ROSTER_SUPERVISE, o->supervise);
}

/* Kubernetes knows the name of a pod once it is there. */
static fleet_status find_master(run_nodes *n)
{
    const run_options *o = n->options;
    bool told = false;
    fleet_status status;

    for (;;) {
        status = run_port_route(o->master, &n->route);
        if (status != FLEET_EIO || now_ms(n) - n->began_ms > o->connect_ms)
            return status;
        if (!told)
            fprintf(stderr, "fleetrun: waits for --master: %s\n",
                    fleet_last_error());
        told = true;
        FL_TRY(wait_a_while(n));
    }
}

fleet_status run_nodes_join(run_nodes **nodes, const run_options *o, int alive)
{
    run_nodes *n;

    FL_TRY(FL_NEW(nodes, sizeof **nodes));
    n = *nodes;
    n->options = o;
    n->alive = alive;
    n->awake = fl_awake_from(fl_now_ms(), fl_awake_step(o->peer_ms));
    n->began_ms = n->awake.ms;
    n->tried_ms = n->asked_ms = n->began_ms - TRY_MS;
    FL_TRY(find_master(n));
    introduce(n);
    FL_TRY(ask(n));
    if (!n->serves)
        return FLEET_OK;
    FL_TRY(serve_until(n, RUN_NODES_RANKED));
    n->own.rank = 0;
    return FLEET_OK;
}

int run_nodes_rank(const run_nodes *n)
{
    return n->own.rank;
}

const char *run_nodes_host(const run_nodes *n)
{
    return n->own.host;
}

static fleet_status write_ports(run_nodes *n, const int *ports)
{
    fl_text text = {0};

    for (int i = 0; i < ports_of_a_node(n->options); i++)
        fl_text_add(&text, "%s%d", i ? " " : "", ports[i]);
    if (text.status == FLEET_OK)
        n->said = fl_strdup(fl_text_chars(&text));
    fl_text_done(&text);
    return n->said ? FLEET_OK : FLEET_ENOMEM;
}

static fleet_status agree_as_server(run_nodes *n)
{
    fl_roster_message list;
    fl_text text = {0};
    fleet_status status;

    run_node_table_take(&n->table, &n->own, now_ms(n));
    if (n->table.phase == RUN_NODES_STARTED)
        answer_all(n);
    status = serve_until(n, RUN_NODES_STARTED);
    if (status == FLEET_OK)
        status = run_node_table_answer(&n->table, 0, &list, &text);
    if (status == FLEET_OK)
        status = read_all(n, list.rest);
    fl_text_done(&text);
    return status;
}

fleet_status run_nodes_agree(run_nodes *n, const int *ports)
{
    FL_TRY(write_ports(n, ports));
    n->own.kind = FL_ROSTER_READY;
    n->own.rest = n->said;
    n->heard_ms = now_ms(n);
    return n->serves ? agree_as_server(n) : ask(n);
}

const char *run_nodes_host_of(const run_nodes *n, int rank)
{
    return n->all[rank].host;
}

const int *run_nodes_ports_of(const run_nodes *n, int rank)
{
    return n->all[rank].port;
}

int run_nodes_signal(const run_nodes *n)
{
    return n ? n->signal : 0;
}

/* The others end with this node's words, and not when it has been silent. */
static void say_why(run_nodes *n, const char *words)
{
    char why[FL_ROSTER_WORDS];

    snprintf(why, sizeof why, "%.*s", FL_ROSTER_WORDS - 1, words);
    fl_text_escape(why, sizeof why);
    if (n->serves) {
        run_node_table_fail(&n->table, why);
        answer_all(n);
    } else {
        n->own.kind = FL_ROSTER_GONE;
        n->own.rest = why;
        fl_roster_link_send(&n->link, NULL, &n->own);
    }
}

void run_nodes_close(run_nodes *n, fleet_status status)
{
    bool talks;
    fl_error error;

    if (!n)
        return;
    fl_error_take(&error, status);
    talks = n->serves ? n->peer != NULL : n->has_heard && !n->is_over;
    if (status != FLEET_OK && talks)
        say_why(n, error.text);
    fl_roster_link_close(&n->link, talks ? LINGER_MS : 0);
    run_node_table_close(&n->table);
    for (int i = 0; n->all && i < n->options->n_node; i++)
        fl_free(n->all[i].port);
    fl_free(n->all);
    fl_free(n->peer);
    fl_free(n->said);
    fl_free(n);
    if (status != FLEET_OK)
        fl_error_raise(&error);
}
