/* ranks_commands.c - what one rank asks all for: saves, loads and hashes of tables
 * that are shared out. Whoever waits serves it in a round; see ranks.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collective/sharded/sharded_table.h"
#include "fleet/ranks.h"
#include "fleet/servers.h"
#include "ps/partition.h"

/* What travels before a text. */
typedef struct act_head {
    int32_t op; /* fl_msg_op; of an answer its fleet_status */
    int32_t reserved;
    int64_t n; /* bytes */
} act_head;

/* A rank's text, for fl_free(), to all. */
static fleet_status share_text(fl_comm *p, int root, act_head *head,
                               char **text)
{
    fleet_status status;

    FL_TRY(p->methods->broadcast(p, head, sizeof *head, root, NULL));
    if (p->rank != root)
        FL_TRY(FL_NEW(text, (size_t)head->n + 1));
    status = p->methods->broadcast(p, *text, head->n, root, NULL);
    if (status != FLEET_OK && p->rank != root) {
        fl_free(*text);
        *text = NULL;
    }
    return status;
}

fl_buckets fl_ranks_own(const fleet *f)
{
    const fl_role *r = &f->role;

    return (fl_buckets){fl_sharded_first_bucket(r->index, r->worker_num),
                        fl_sharded_first_bucket(r->index + 1, r->worker_num)};
}

static fleet_status hash_table(const fleet *f, const char *name, char **answer)
{
    const fl_rows *rows = fl_store_rows(f->store, name);
    uint64_t sum = 0;
    char text[24];

    if (!rows)
        return fl_fail(FLEET_ENOENT, "there is no table \"%s\"", name);
    FL_TRY(fl_store_hash_rows(rows, &sum));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)sum);
    *answer = fl_strdup(text);
    return *answer ? FLEET_OK : FLEET_ENOMEM;
}

/* This rank's part of it. */
static fleet_status act_here(fleet *f, fl_msg_op op, const char *text,
                             char **answer)
{
    fleet_status status;
    fl_partition layout;

    *answer = NULL;
    if (op == FL_OP_HASH)
        return hash_table(f, text, answer);
    FL_TRY(fl_store_here(f->store));
    FL_TRY(fl_partition_make(&layout, f->store, 1));
    status = fl_lane_act(f, &layout, fl_ranks_own(f), f->role.index,
                         FL_LANE_OF_RANK, op, text, answer);
    fl_partition_done(&layout);
    return status;
}

/* All answers go to all, so that all know whether it was done. */
static fleet_status share_answers(fl_comm *p, fleet_status mine, char **answer)
{
    fleet_status status = FLEET_OK;

    for (int r = 0; r < p->size; r++) {
        act_head head = {.op = (int32_t)mine,
                         .n = answer[r] ? (int64_t)strlen(answer[r]) : 0};

        FL_TRY(share_text(p, r, &head, &answer[r]));
        if (status == FLEET_OK && head.op != FLEET_OK)
            status =
                fl_fail((fleet_status)head.op, "rank %d: %s", r, answer[r]);
    }
    return status;
}

static fleet_status act(fleet *f, int root, fl_msg_op op, char *text,
                        char **answer)
{
    fl_comm *p = f->comm;
    act_head head = {.op = (int32_t)op, .n = text ? (int64_t)strlen(text) : 0};
    fleet_status status;

    FL_TRY(share_text(p, root, &head, &text));
    status = act_here(f, (fl_msg_op)head.op, text, &answer[p->rank]);
    if (p->rank != root)
        fl_free(text);
    if (status != FLEET_OK) {
        fl_free(answer[p->rank]);
        answer[p->rank] = fl_strdup(fleet_last_error());
    }
    return share_answers(p, status, answer);
}

fleet_status fl_ranks_act(fleet *f, fl_msg_op op, const char *text,
                          char **answer)
{
    fleet_status status;
    fl_agreed round;
    char *copy;

    FL_TRY(fl_agree_on(f->store->agree, FL_INTENT_COMMAND, 0, &round));
    copy = fl_strdup(text);
    if (!copy)
        return FLEET_ENOMEM;
    status = act(f, f->role.index, op, copy, answer);
    fl_free(copy);
    return status;
}

/* Others' acts: what went wrong is told to who asked, and is in its words. */
static fleet_status serve_act(fleet *f, int root)
{
    int n = f->comm->size;
    char **answer = fl_alloc_array((size_t)n, sizeof *answer);
    fleet_status status = FLEET_ENOMEM;

    if (answer)
        status = act(f, root, FL_OP_TEXT, NULL, answer);
    for (int i = 0; answer && i < n; i++)
        fl_free(answer[i]);
    fl_free(answer);
    return status == FLEET_EPEER || status == FLEET_ETIMEDOUT ? status
                                                              : FLEET_OK;
}

fleet_status fl_ranks_serve(void *arg, const fl_agreed *round)
{
    fleet *f = arg;

    if (round->done == FL_INTENT_COMMAND)
        return serve_act(f, round->first);
    if (f->sharded)
        return fl_sharded_serve(f->sharded);
    return fl_fail(FLEET_EINVAL,
                   "rank %d asks for rows, but no table is shared out",
                   round->first);
}

fleet_status fl_ranks_hash(void *arg, const fl_rows *rows, uint64_t *sum)
{
    fleet *f = arg;
    int n = f->role.worker_num;
    char **answer = fl_alloc_array((size_t)n, sizeof *answer);
    fleet_status status = FLEET_ENOMEM;

    if (answer)
        status = fl_ranks_act(f, FL_OP_HASH, rows->name, answer);
    *sum = 0;
    for (int i = 0; answer && i < n; i++) {
        if (status == FLEET_OK)
            *sum += strtoull(answer[i], NULL, 16);
        fl_free(answer[i]);
    }
    fl_free(answer);
    return status;
}
