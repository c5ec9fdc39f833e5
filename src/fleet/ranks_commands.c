/* ranks_commands.c - a command travels from the rank that gives it to all
 * ranks, each does its part, and all answers go to all ranks. A rank that waits
 * for other ranks does its part from fl_ranks_serve(). */
#include "fleet/ranks_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collective/sharded/sharded_table.h"
#include "fleet/save/table_part.h"
#include "fleet/save_part.h"
#include "runtime/reduce/whole_weights.h"
#include "runtime/store/store_hash.h"

/* What travels before a text. */
typedef struct text_head {
    int32_t code; /* of a command, fl_job_command; of an answer, fleet_status */
    int32_t reserved;
    int64_t n; /* bytes */
} text_head;

/* A rank's text, for fl_free(), to all. */
static fleet_status share_text(fl_comm *p, int root, text_head *head,
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

fl_bucket_set fl_ranks_own(const fleet *f)
{
    const fl_role *r = &f->role;

    return fl_bucket_range(
        fl_sharded_first_bucket(r->index, r->worker_num),
        fl_sharded_first_bucket(r->index + 1, r->worker_num));
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

static fleet_status run_command(fleet *f, fl_job_command command,
                                const char *text, char **answer)
{
    *answer = NULL;
    if (command == FL_COMMAND_HASH)
        return hash_table(f, text, answer);
    FL_TRY(fl_store_to_host(f->store));
    const fl_bucket_set own = fl_ranks_own(f);

    if (command == FL_COMMAND_SAVE)
        return fl_save_part_of_rank(f->store, &own, f->role.index, text,
                                    answer);
    FL_TRY(fl_table_part(f->store, &own, command, text, answer));
    if (command == FL_COMMAND_WRITE)
        fl_store_written(f->store);
    return FLEET_OK;
}

/* All answers go to all, so that all know whether it was done. */
static fleet_status share_answers(fl_comm *p, fleet_status mine, char **answer)
{
    fleet_status status = FLEET_OK;

    for (int r = 0; r < p->size; r++) {
        text_head head = {.code = (int32_t)mine,
                          .n = answer[r] ? (int64_t)strlen(answer[r]) : 0};

        FL_TRY(share_text(p, r, &head, &answer[r]));
        if (status == FLEET_OK && head.code != FLEET_OK)
            status =
                fl_fail((fleet_status)head.code, "rank %d: %s", r, answer[r]);
    }
    return status;
}

/* On all ranks at once; the root knows head and text. */
static fleet_status run_together(fleet *f, int root, text_head head, char *text,
                                 char **answer)
{
    fl_comm *p = f->comm;
    fleet_status status;

    FL_TRY(share_text(p, root, &head, &text));
    status = run_command(f, (fl_job_command)head.code, text, &answer[p->rank]);
    if (p->rank != root)
        fl_free(text);
    if (status != FLEET_OK) {
        fl_free(answer[p->rank]);
        answer[p->rank] = fl_strdup(fleet_last_error());
    }
    return share_answers(p, status, answer);
}

fleet_status fl_ranks_command(fleet *f, fl_job_command command,
                              const char *text, char **answer)
{
    text_head head = {.code = (int32_t)command, .n = (int64_t)strlen(text)};
    fleet_status status;
    fl_agreed round;
    char *copy;

    FL_TRY(fl_agree_on(f->store->agree, FL_INTENT_COMMAND, 0, &round));
    copy = fl_strdup(text);
    if (!copy)
        return FLEET_ENOMEM;
    status = run_together(f, f->role.index, head, copy, answer);
    fl_free(copy);
    return status;
}

/* Another rank's command: that rank is told what went wrong, and its caller. */
static fleet_status serve_command(fleet *f, int root)
{
    int n = f->comm->size;
    char **answer = fl_alloc_array((size_t)n, sizeof *answer);
    fleet_status status = FLEET_ENOMEM;

    if (answer)
        status = run_together(f, root, (text_head){0}, NULL, answer);
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
        return serve_command(f, round->first);
    if (round->done == FL_INTENT_WEIGHTS)
        return fl_whole_weights_serve(f->store);
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
        status = fl_ranks_command(f, FL_COMMAND_HASH, rows->name, answer);
    *sum = 0;
    for (int i = 0; answer && i < n; i++) {
        if (status == FLEET_OK)
            *sum += strtoull(answer[i], NULL, 16);
        fl_free(answer[i]);
    }
    fl_free(answer);
    return status;
}
