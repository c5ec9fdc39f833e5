/* worker_job.c - a worker's steps without a gradient and its other requests:
 * ends of passes, numbers of all workers, commands, hashes, leaving. */
#include <string.h>

#include "base/memory.h"
#include "ps/worker/geo.h"
#include "ps/worker/hot_pull.h"
#include "ps/residuals.h"
#include "ps/worker/worker_internal.h"

static fleet_status make_step(fl_worker *w, uint16_t flags, fl_section_op op,
                              const char *text)
{
    for (int i = 0; i < w->n_lane; i++) {
        fl_msg_writer writer;

        fl_request_clear(&w->push[i]);
        fl_client_begin(w->client, i, &w->push[i], &writer, FL_MSG_STEP,
                        w->step, flags | FL_MSG_END_OF_STEP);
        if (text)
            fl_msg_text(&writer, op, text);
        FL_TRY(fl_client_add(w->client, &w->push[i], &writer));
    }
    return FLEET_OK;
}

/* A step of the stream without a gradient, to every lane: not waited for. */
static fleet_status send_step(fl_worker *w, uint16_t flags, fl_section_op op,
                              const char *text)
{
    FL_TRY(fl_client_status(w->client));
    FL_TRY(fl_worker_wait_update(w));
    w->step++;
    FL_TRY(fl_worker_undo_step(w, w->push, make_step(w, flags, op, text)));
    FL_TRY(fl_worker_undo_step(w, w->push,
                               fl_worker_note_step(w, flags, op, text)));
    w->pushed = true;
    for (int i = 0; i < w->n_lane; i++)
        fl_client_send(w->client, &w->push[i], fl_worker_now(w));
    return FLEET_OK;
}

/* --- numbers of all workers ----------------------------------------------- */

static fleet_status send_numbers(fl_worker *w, fl_request *r, fl_reduction how,
                                 const double *x, int n)
{
    fl_msg_writer writer;
    void *values;

    fl_client_begin(w->client, 0, r, &writer, FL_MSG_REDUCE, w->reduced + 1, 0);
    fl_msg_section(&writer, FL_SECTION_REDUCE, (uint32_t)how);
    values = fl_msg_column(&writer, FL_COLUMN_VALUES, (size_t)n * sizeof *x);
    if (values && n > 0)
        memcpy(values, x, (size_t)n * sizeof *x);
    FL_TRY(fl_client_add(w->client, r, &writer));
    w->reduced++;
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

static fleet_status take_numbers(fl_worker *w, fl_request *r, double *x, int n)
{
    const fl_msg *msg;

    FL_TRY(fl_worker_wait(w, r, 1, "sum over workers"));
    msg = fl_client_answer(w->client, r);
    if (!msg || msg->head.n_section != 1 ||
        msg->column[0][FL_AT_VALUES].size != (size_t)n * sizeof *x)
        return fl_fail(FLEET_EFORMAT,
                       "%s has answered a sum with something "
                       "else",
                       fl_client_lane_name(w->client, 0));
    if (n > 0)
        memcpy(x, msg->column[0][FL_AT_VALUES].data, (size_t)n * sizeof *x);
    return FLEET_OK;
}

static fleet_status join_numbers(fl_worker *w, fl_reduction how, double *x,
                                 int n)
{
    fl_request r = {0};
    fleet_status status = fl_client_status(w->client);

    if (status == FLEET_OK && fl_worker_knows_sum(w, x, n, &status))
        return status;
    if (status == FLEET_OK)
        status = fl_worker_note_numbers(w, how, x, n);
    if (status == FLEET_OK)
        status = send_numbers(w, &r, how, x, n);
    if (status == FLEET_OK)
        status = take_numbers(w, &r, x, n);
    fl_client_cancel(w->client, &r);
    fl_request_done(&r);
    return status == FLEET_OK ? fl_worker_note_sum(w, x, n) : status;
}

/* The coordinator alone hears of the numbers; every lane must know that this
 * worker makes no step before the other workers have come as far. A lane that
 * has not heard that of all of them would answer the pulls of the next step
 * too early: this worker waits until the pass is over everywhere. */
fleet_status fl_worker_reduce(fl_worker *w, fl_reduction how, double *x, int n)
{
    if (w->bounds_staleness)
        FL_TRY(send_step(w, FL_MSG_PASS_END, FL_SECTION_NO_OP, NULL));
    FL_TRY(join_numbers(w, how, x, n));
    return w->bounds_staleness ? fl_worker_wait_update(w) : FLEET_OK;
}

/* --- leases --------------------------------------------------------------- */

static fleet_status ask_lease(fl_worker *w, fl_request *r,
                              const fl_lease_question *q)
{
    fl_msg_writer writer;
    void *bytes;

    fl_client_begin(w->client, 0, r, &writer, FL_MSG_LEASE, w->reduced, 0);
    fl_msg_section(&writer, FL_SECTION_LEASE, 0);
    bytes = fl_msg_column(&writer, FL_COLUMN_BYTES, sizeof *q);
    if (bytes)
        memcpy(bytes, q, sizeof *q);
    FL_TRY(fl_client_add(w->client, r, &writer));
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

static fleet_status take_lease(fl_worker *w, fl_request *r, uint64_t *lease)
{
    const fl_msg *msg;

    FL_TRY(fl_worker_wait(w, r, 1, "lease"));
    msg = fl_client_answer(w->client, r);
    if (!msg || msg->head.n_section != 1 ||
        msg->column[0][FL_AT_BYTES].size != sizeof *lease)
        return fl_fail(FLEET_EFORMAT, "%s has sent no lease",
                       fl_client_lane_name(w->client, 0));
    memcpy(lease, msg->column[0][FL_AT_BYTES].data, sizeof *lease);
    return FLEET_OK;
}

fleet_status fl_worker_lease(fl_worker *w, const fl_lease_question *q,
                             uint64_t *lease)
{
    fl_request r = {0};
    fleet_status status = fl_client_status(w->client);

    if (status == FLEET_OK)
        status = ask_lease(w, &r, q);
    if (status == FLEET_OK)
        status = take_lease(w, &r, lease);
    fl_client_cancel(w->client, &r);
    fl_request_done(&r);
    return status;
}

/* --- passes --------------------------------------------------------------- */

static fleet_status close_pass(fl_worker *w, double *sum, int n)
{
    FL_TRY(send_step(w, FL_MSG_PASS_END, FL_SECTION_NO_OP, NULL));
    FL_TRY(join_numbers(w, FL_REDUCTION_PASS, sum, n));
    fl_hot_pull_fence(w);
    return w->remote.methods->refresh(&w->remote); /* waits for the pass's end,
                                                      too */
}

fleet_status fl_worker_end_pass(fl_remote *x, double *sum, int n)
{
    fl_worker *w = (fl_worker *)(void *)x;

    FL_TRY(fl_worker_note_pass(w));
    return close_pass(w, sum, n);
}

fleet_status fl_worker_close_pass(fl_worker *w)
{
    FL_TRY(send_step(w, FL_MSG_PASS_END, FL_SECTION_NO_OP, NULL));
    fl_hot_pull_fence(w);
    return w->remote.methods->refresh(&w->remote);
}

/* In sync it ends the pass also of a worker that has pushed nothing: the other
 * workers' steps wait for it. So does the sum where staleness is bounded. */
fleet_status fl_worker_barrier(fl_worker *w)
{
    double none = 0;

    if (w->remote.sync)
        return close_pass(w, &none, 0);
    FL_TRY(fl_geo_flush(w));
    FL_TRY(fl_worker_wait_update(w));
    FL_TRY(fl_worker_reduce(w, FL_REDUCTION_SUM, &none, 0));
    fl_hot_pull_fence(w);
    return w->remote.methods->refresh(&w->remote);
}

/* With a trail no lane may end before all know: a process that is started again
 * finds them, or finds in the trail that it need not. */
static fleet_status leave(fl_worker *w)
{
    FL_TRY(send_step(w, FL_MSG_LEAVE, FL_SECTION_NO_OP, NULL));
    FL_TRY(fl_worker_wait_update(w));
    if (!w->trail)
        return FLEET_OK;
    FL_TRY(fl_trail_has_left(w->trail));
    fl_client_say_bye(w->client);
    return FLEET_OK;
}

fleet_status fl_worker_leave(fl_worker *w)
{
    FL_TRY(fl_worker_wait_update(w)); /* it may ask for weights, in vain */
    for (int i = 0; i < FL_MOST_PULL_SLOT; i++) /* pulled ahead, in vain */
        w->remote.methods->drop(&w->remote, i);
    fl_worker_drop(&w->remote, FL_DENSE_SLOT);
    FL_TRY(fl_geo_flush(w));
    if (w->remote.behind)
        FL_TRY(w->remote.methods->refresh(&w->remote));
    return leave(w);
}

/* --- commands ------------------------------------------------------------- */

fleet_status fl_worker_command(fl_worker *w, fl_job_command command,
                               const char *text, char **answer)
{
    static const struct {
        fl_section_op op;
        const char *name;
    } of[] = {[FL_COMMAND_SAVE] = {FL_SECTION_SAVE, "save"},
              [FL_COMMAND_LOAD] = {FL_SECTION_LOAD, "load"},
              [FL_COMMAND_WRITE] = {FL_SECTION_WRITE, "write"}};
    fleet_status status;

    FL_TRY(fl_geo_flush(w));
    if (fl_worker_knows_command(w, answer, &status))
        return status;
    FL_TRY(send_step(w, FL_MSG_COMMAND, of[command].op, text));
    status = fl_worker_wait_update_as(w, of[command].name);
    /* what a lane could not do is a step nevertheless, and the stream goes on;
     * after half a load nothing does */
    w->pushed = w->pushed || (command == FL_COMMAND_LOAD && status != FLEET_OK);
    FL_TRY(status);
    for (int i = 0; answer && i < w->n_lane; i++) {
        const fl_msg *msg = fl_client_answer(w->client, &w->push[i]);

        answer[i] = msg ? fl_msg_get_text(msg, FL_SECTION_TEXT) : NULL;
        if (!answer[i])
            return fl_fail(FLEET_EFORMAT, "%s has not said what it did",
                           fl_client_lane_name(w->client, i));
    }
    return fl_worker_note_command(w, answer);
}

/* A command that has failed is over; whether it was it has said once. */
static fleet_status step_again(fl_worker *w, const fl_trail_call *c)
{
    fleet_status status;

    w->step = c->step - 1;
    FL_TRY(send_step(w, (uint16_t)(c->flags & ~FL_MSG_END_OF_STEP),
                     (fl_section_op)c->op, c->text));
    status = fl_worker_wait_update_as(w, "call");
    return w->pushed ? status : fl_client_status(w->client);
}

static fleet_status sum_again(fl_worker *w, const fl_trail_call *c)
{
    size_t bytes = (size_t)c->n * sizeof(double);
    double *x = fl_alloc(bytes);
    fleet_status status = FLEET_ENOMEM;

    if (x && bytes > 0)
        memcpy(x, c->x, bytes);
    w->reduced = c->reduced - 1;
    if (x)
        status = join_numbers(w, (fl_reduction)c->op, x, c->n);
    fl_free(x);
    return status;
}

fleet_status fl_worker_call_again(fl_worker *w, const fl_trail_call *c)
{
    fl_trail *trail = w->trail;
    fleet_status status;

    w->trail = NULL; /* which has it */
    status = c->reduces ? sum_again(w, c) : step_again(w, c);
    w->trail = trail;
    return status;
}

fleet_status fl_worker_leave_again(fl_worker *w)
{
    w->step = fl_trail_from(w->trail)->step - 1;
    return leave(w);
}

/* A worker that comes late from its last pass still renews its weights: nothing
 * is loaded before it has them. */
fleet_status fl_worker_load(fl_worker *w, const char *text)
{
    double none = 0;

    FL_TRY(fl_worker_wait_update(w)); /* nothing of before comes after it */
    FL_TRY(fl_geo_forget(w));
    fl_residuals_forget(w->residuals);
    FL_TRY(fl_worker_reduce(w, FL_REDUCTION_SUM, &none, 0));
    if (text)
        FL_TRY(fl_worker_command(w, FL_COMMAND_LOAD, text, NULL));
    return fl_worker_barrier(w);
}

/* --- questions ------------------------------------------------------------ */

static fleet_status query_hash(fl_worker *w, fl_request *r, int lane, int table)
{
    fl_msg_writer writer;

    fl_client_begin(w->client, lane, r, &writer, FL_MSG_QUERY, 0, 0);
    fl_msg_section(&writer, FL_SECTION_HASH, (uint32_t)table);
    FL_TRY(fl_client_add(w->client, r, &writer));
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

static fleet_status take_hash(fl_worker *w, fl_request *r, uint64_t *sum,
                              uint64_t *rows)
{
    const fl_msg *msg;
    uint64_t both[2];

    FL_TRY(fl_worker_wait(w, r, 1, "params_hash"));
    msg = fl_client_answer(w->client, r);
    if (!msg || msg->head.n_section != 1 ||
        msg->column[0][FL_AT_BYTES].size != sizeof both)
        return fl_fail(FLEET_EFORMAT, "%s has sent no hash",
                       fl_client_lane_name(w->client, r->lane));
    memcpy(both, msg->column[0][FL_AT_BYTES].data, sizeof both);
    *sum += both[0];
    *rows += both[1];
    return FLEET_OK;
}

fleet_status fl_worker_hash(fl_worker *w, int table, uint64_t *sum,
                            uint64_t *rows)
{
    fl_request *r = fl_alloc_array((size_t)w->n_lane, sizeof *r);
    fleet_status status = r ? fl_geo_flush(w) : FLEET_ENOMEM;

    if (status == FLEET_OK)
        status = fl_worker_wait_update(w);
    *sum = *rows = 0;
    for (int i = 0; status == FLEET_OK && i < w->n_lane; i++)
        status = query_hash(w, &r[i], i, table);
    for (int i = 0; status == FLEET_OK && i < w->n_lane; i++)
        status = take_hash(w, &r[i], sum, rows);
    fl_client_forget(w->client, r, w->n_lane);
    return status;
}

static fleet_status query_text(fl_worker *w, fl_request *r, int lane,
                               const char *text)
{
    fl_msg_writer writer;

    fl_client_begin(w->client, lane, r, &writer, FL_MSG_QUERY, 0, 0);
    fl_msg_text(&writer, FL_SECTION_READ, text);
    FL_TRY(fl_client_add(w->client, r, &writer));
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

static fleet_status take_text(fl_worker *w, fl_request *r, char **answer)
{
    const fl_msg *msg;

    FL_TRY(fl_worker_wait(w, r, 1, "read"));
    msg = fl_client_answer(w->client, r);
    *answer = msg ? fl_msg_get_text(msg, FL_SECTION_TEXT) : NULL;
    return *answer ? FLEET_OK
                   : fl_fail(FLEET_EFORMAT, "%s has not said what it has",
                             fl_client_lane_name(w->client, r->lane));
}

fleet_status fl_worker_read(fl_worker *w, const char *text, char **answer)
{
    fl_request *r = fl_alloc_array((size_t)w->n_lane, sizeof *r);
    fleet_status status = r ? fl_worker_wait_update(w) : FLEET_ENOMEM;

    for (int i = 0; status == FLEET_OK && i < w->n_lane; i++)
        status = query_text(w, &r[i], i, text);
    for (int i = 0; status == FLEET_OK && i < w->n_lane; i++)
        status = take_text(w, &r[i], &answer[i]);
    fl_client_forget(w->client, r, w->n_lane);
    return status;
}

/* --- worker_io.h: the same, under its lock -------------------------------- */

fleet_status fl_worker_io_before_end(const fl_worker_io *l)
{
    return l->open && l->before_end ? l->before_end(l->before_arg) : FLEET_OK;
}

#define FORWARDED(name, parameters, call)                                      \
    fleet_status fl_worker_io_##name parameters                                \
    {                                                                          \
        FL_TRY(fl_worker_io_lock(l));                                          \
        return fl_worker_io_unlock(l, call);                                   \
    }

FORWARDED(reduce, (fl_worker_io * l, fl_reduction how, double *x, int n),
          fl_worker_reduce(&l->worker, how, x, n))
FORWARDED(close_pass, (fl_worker_io * l), fl_worker_close_pass(&l->worker))
FORWARDED(command,
          (fl_worker_io * l, fl_job_command command, const char *text,
           char **answer),
          fl_worker_command(&l->worker, command, text, answer))
FORWARDED(knows_save, (fl_worker_io * l, bool *over),
          fl_worker_knows_save(&l->worker, over))
FORWARDED(note_saved, (fl_worker_io * l, fleet_status status),
          fl_worker_note_saved(&l->worker, status))
FORWARDED(lease, (fl_worker_io * l, const fl_lease_question *q, uint64_t *to),
          fl_worker_lease(&l->worker, q, to))
FORWARDED(read, (fl_worker_io * l, const char *text, char **answer),
          fl_worker_read(&l->worker, text, answer))
FORWARDED(hash,
          (fl_worker_io * l, const char *table, uint64_t *sum, uint64_t *rows),
          fl_worker_hash(&l->worker,
                         fl_partition_table(&l->worker.layout, table), sum,
                         rows))
