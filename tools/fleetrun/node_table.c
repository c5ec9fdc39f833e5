/* node_table.c - nodes come, are compared, get ranks, are ready or silent. */
#include "node_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

static const char *const field_words[] = {
#define FIELD(NAME, flag, variable) flag,
    FL_ROSTER_FIELDS(FIELD)
#undef FIELD
};

fleet_status run_node_table_open(run_node_table *t,
                                 const fl_roster_message *own, int n_node,
                                 int n_port, int64_t now_ms, int64_t connect_ms,
                                 int64_t peer_ms)
{
    *t = (run_node_table){.own = *own,
                          .n_node = n_node,
                          .n_port = n_port,
                          .connect_ms = connect_ms,
                          .deadline_ms = now_ms + connect_ms,
                          .peer_ms = peer_ms};
    t->own.rank = 0;
    t->node = fl_alloc_array((size_t)n_node, sizeof *t->node);
    if (!t->node)
        return FLEET_ENOMEM;
    run_node_table_take(t, &t->own, now_ms);
    return FLEET_OK;
}

void run_node_table_close(run_node_table *t)
{
    for (int i = 0; t->node && i < t->n; i++)
        fl_free(t->node[i].ports);
    fl_free(t->node);
    *t = (run_node_table){0};
}

static void __attribute__((format(printf, 2, 3)))
fail_table(run_node_table *t, const char *format, ...)
{
    va_list args;

    if (t->phase == RUN_NODES_FAILED)
        return;
    va_start(args, format);
    vsnprintf(t->words, sizeof t->words, format, args);
    va_end(args);
    t->phase = RUN_NODES_FAILED;
}

static int __attribute__((format(printf, 2, 3)))
refuse_node(run_node_table *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(t->refused, sizeof t->refused, format, args);
    va_end(args);
    return -1;
}

/* --- who comes ------------------------------------------------------------ */

static int find_node(const run_node_table *t, const char *id)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->node[i].id, id) == 0)
            return i;
    return -1;
}

static int find_rank(const run_node_table *t, int rank)
{
    for (int i = 0; i < t->n; i++)
        if (t->node[i].rank == rank)
            return i;
    return -1;
}

/* A job of another name has come to the wrong port: that is said first. */
static bool differs(run_node_table *t, const fl_roster_message *m)
{
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        if (strcmp(m->field[i], t->own.field[i]) != 0) {
            refuse_node(t,
                        "%s is \"%s\" on %s, but \"%s\" on %s, which serves "
                        "--master: expected the same on all nodes%s",
                        field_words[i], m->field[i], m->host, t->own.field[i],
                        t->own.host,
                        i == FL_ROSTER_JOB ? "; another job needs another port"
                                           : "");
            return true;
        }
    return false;
}

/* By address, so that a job that is started again has the same ranks: that of
 * fewer letters first, as 10.0.0.2 comes before 10.0.0.10. */
static int compare_hosts(const run_node *a, const run_node *b)
{
    const size_t n = strlen(a->host), m = strlen(b->host);

    return n != m ? (n < m ? -1 : 1) : strcmp(a->host, b->host);
}

static run_node *next_without_rank(run_node_table *t)
{
    run_node *least = NULL;

    for (int i = 0; i < t->n; i++)
        if (t->node[i].rank < 0 &&
            (!least || compare_hosts(&t->node[i], least) < 0))
            least = &t->node[i];
    return least;
}

static void give_ranks(run_node_table *t, int64_t now_ms)
{
    for (int rank = 0; rank < t->n_node; rank++)
        if (find_rank(t, rank) < 0)
            next_without_rank(t)->rank = rank;
    t->phase = RUN_NODES_RANKED;
    t->deadline_ms = now_ms + t->connect_ms;
}

static int add_node(run_node_table *t, const fl_roster_message *m,
                    int64_t now_ms)
{
    run_node *node;
    int other = m->rank < 0 ? -1 : find_rank(t, m->rank);

    if (differs(t, m))
        return -1;
    if (t->n == t->n_node || t->phase != RUN_NODES_COMING)
        return refuse_node(t,
                           "%s is one too many: the job \"%s\" has its %d "
                           "nodes already; another job needs another port",
                           m->host, t->own.field[FL_ROSTER_JOB], t->n_node);
    if (m->rank >= t->n_node)
        return refuse_node(t, "--node_rank of %s is %d, of %d nodes", m->host,
                           m->rank, t->n_node);
    if (other >= 0)
        return refuse_node(t,
                           "--node_rank of %s is %d, but %s is that node "
                           "already%s",
                           m->host, m->rank, t->node[other].host,
                           other ? "" : ", as it serves --master");
    node = &t->node[t->n++];
    *node = (run_node){.rank = m->rank, .heard_ms = now_ms};
    snprintf(node->id, sizeof node->id, "%s", m->id);
    snprintf(node->host, sizeof node->host, "%s", m->host);
    if (t->n == t->n_node)
        give_ranks(t, now_ms);
    return t->n - 1;
}

/* --- who is ready --------------------------------------------------------- */

static bool are_ports(const char *text, int n)
{
    for (; n > 0; n--) {
        char *end;
        long port = strtol(text, &end, 10);

        if (end == text || port < 1 || port > 65535 ||
            *end != (n > 1 ? ' ' : 0))
            return false;
        text = end + 1;
    }
    return true;
}

static void set_ready(run_node_table *t, run_node *node, const char *ports)
{
    if (t->phase != RUN_NODES_RANKED || node->ports)
        return;
    if (!are_ports(ports, t->n_port)) {
        fail_table(t, "node %d (%s): expected %d ports, got \"%.200s\"",
                   node->rank, node->host, t->n_port, ports);
        return;
    }
    node->ports = fl_strdup(ports);
    if (!node->ports) {
        fail_table(t, "%s", fleet_last_error());
        return;
    }
    for (int i = 0; i < t->n; i++)
        if (!t->node[i].ports)
            return;
    t->phase = RUN_NODES_STARTED;
}

int run_node_table_take(run_node_table *t, const fl_roster_message *m,
                        int64_t now_ms)
{
    int place = find_node(t, m->id);

    if (place < 0)
        return m->kind == FL_ROSTER_JOIN
                   ? add_node(t, m, now_ms)
                   : refuse_node(t, "%s has not joined the job", m->host);
    t->node[place].heard_ms = now_ms;
    t->node[place].is_gone = m->kind == FL_ROSTER_GONE;
    if (m->kind == FL_ROSTER_READY)
        set_ready(t, &t->node[place], m->rest);
    else if (m->kind == FL_ROSTER_GONE && t->phase != RUN_NODES_STARTED)
        fail_table(t, "node %s has ended before the job began: %s",
                   t->node[place].host, m->rest);
    return place;
}

/* --- what they hear ------------------------------------------------------- */

static fleet_status list_nodes(const run_node_table *t, fl_text *list)
{
    for (int rank = 0; rank < t->n_node; rank++) {
        const run_node *node = &t->node[find_rank(t, rank)];

        fl_text_add(list, "%s %s\n", node->host, node->ports);
    }
    return list->status;
}

fleet_status run_node_table_answer(const run_node_table *t, int place,
                                   fl_roster_message *answer, fl_text *list)
{
    static const fl_roster_kind kinds[] = {FL_ROSTER_WAIT, FL_ROSTER_RANK,
                                           FL_ROSTER_START, FL_ROSTER_FAILED};

    *answer = t->own;
    answer->kind = place < 0 ? FL_ROSTER_REFUSED : kinds[t->phase];
    answer->rank = place < 0 ? -1 : t->node[place].rank;
    answer->rest = "";
    if (answer->kind == FL_ROSTER_REFUSED)
        answer->rest = t->refused;
    else if (answer->kind == FL_ROSTER_FAILED)
        answer->rest = t->words;
    else if (answer->kind == FL_ROSTER_START) {
        FL_TRY(list_nodes(t, list));
        answer->rest = fl_text_chars(list);
    }
    return FLEET_OK;
}

/* --- deadlines ------------------------------------------------------------ */

static void list_hosts(const run_node_table *t, char *out, size_t size)
{
    size_t n = 0;

    *out = 0;
    for (int i = 0; i < t->n && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "",
                              t->node[i].host);
}

static void fail_late(run_node_table *t)
{
    char hosts[FL_ROSTER_WORDS / 3];
    int n_ready = 0;

    list_hosts(t, hosts, sizeof hosts);
    for (int i = 0; i < t->n; i++)
        n_ready += t->node[i].ports != NULL;
    if (t->phase == RUN_NODES_RANKED)
        fail_table(t, "only %d of %d nodes are ready after %lld ms", n_ready,
                   t->n_node, (long long)t->connect_ms);
    else
        fail_table(t,
                   "only %d of %d nodes (--nnodes) have come within %lld ms "
                   "(FLEET_CONNECT_DEADLINE_MS): %s%s%.300s",
                   t->n, t->n_node, (long long)t->connect_ms, hosts,
                   *t->refused ? "; one was refused: " : "", t->refused);
}

/* The first node is this one. */
void run_node_table_tick(run_node_table *t, int64_t now_ms)
{
    if (t->phase != RUN_NODES_COMING && t->phase != RUN_NODES_RANKED)
        return;
    for (int i = 1; i < t->n; i++)
        if (now_ms - t->node[i].heard_ms > t->peer_ms)
            fail_table(t,
                       "node %s came and has said nothing for %lld ms "
                       "(FLEET_PEER_DEADLINE_MS)",
                       t->node[i].host, (long long)t->peer_ms);
    if (now_ms > t->deadline_ms)
        fail_late(t);
}

void run_node_table_fail(run_node_table *t, const char *why)
{
    fail_table(t, "node %s has ended before the job began: %s", t->own.host,
               why);
}
