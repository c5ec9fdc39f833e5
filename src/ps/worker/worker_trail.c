/* worker_trail.c - what a worker writes into its trail, and how it goes on from
 * one: pushes and calls that may not have come to all lanes are made again. */
#include <string.h>

#include "base/memory.h"
#include "ps/journal/log_end.h"
#include "ps/worker/worker_internal.h"

fleet_status fl_worker_check_trail(const fl_trail *t, int index)
{
    const fl_trail_point *from = fl_trail_from(t);

    if (from->state == FL_TRAIL_GONE)
        return fl_fail(FLEET_EEND,
                       "worker %d has done its part of the job already, and "
                       "has left it: nothing is to be done",
                       index);
    if (from->state == FL_TRAIL_LOST)
        return fl_fail(FLEET_ESTATE,
                       "worker %d was started again and cannot go on: it has "
                       "trained batches of which its log does not say where "
                       "they come from (fleet_executor_run(), or trainer "
                       "threads with hogwild): expected "
                       "fleet_train_from_dataset() without hogwild",
                       index);
    return FLEET_OK;
}

fleet_status fl_worker_use_trail(fl_worker *w, fl_trail *trail,
                                 const fl_trail_host *host, int index)
{
    FL_TRY(fl_worker_check_trail(trail, index));
    fl_trail_set_host(trail, host);
    FL_TRY(FL_NEW(&w->packets, (size_t)w->n_lane * sizeof *w->packets));
    w->trail = trail;
    return FLEET_OK;
}

/* --- written -------------------------------------------------------------- */

fleet_status fl_worker_note_push(fl_worker *w)
{
    if (!w->trail || w->by_parts) /* which are written down one by one */
        return FLEET_OK;
    for (int i = 0; i < w->n_lane; i++)
        w->packets[i] =
            (fl_trail_packets){w->pushing[i].piece, w->pushing[i].n_piece};
    return fl_trail_push(w->trail, w->step, w->reduced, w->packets, w->n_lane);
}

fleet_status fl_worker_note_step(fl_worker *w, uint16_t flags, fl_section_op op,
                                 const char *text)
{
    if (!w->trail)
        return FLEET_OK;
    if (flags & FL_MSG_LEAVE)
        return fl_trail_leaves(w->trail, w->step);
    if (op == FL_SECTION_SAVE)
        FL_TRY(fl_trail_save_begins(w->trail, w->step, text));
    return fl_trail_call_begins(w->trail,
                                &(fl_trail_call){.step = w->step,
                                                 .reduced = w->reduced,
                                                 .flags = flags,
                                                 .op = (uint16_t)op,
                                                 .text = text});
}

fleet_status fl_worker_note_numbers(fl_worker *w, fl_reduction how,
                                    const double *x, int n)
{
    if (!w->trail)
        return FLEET_OK;
    return fl_trail_call_begins(w->trail,
                                &(fl_trail_call){.step = w->step,
                                                 .reduced = w->reduced + 1,
                                                 .reduces = true,
                                                 .op = (uint16_t)how,
                                                 .x = x,
                                                 .n = n});
}

fleet_status fl_worker_note_pass(fl_worker *w)
{
    return w->trail ? fl_trail_pass_is_over(w->trail, w->step, w->reduced)
                    : FLEET_OK;
}

fleet_status fl_worker_note_sum(fl_worker *w, const double *x, int n)
{
    return w->trail ? fl_trail_reduced(w->trail, w->reduced, x, n) : FLEET_OK;
}

fleet_status fl_worker_note_command(fl_worker *w, char *const *answer)
{
    return w->trail
               ? fl_trail_command_done(w->trail, w->step, answer, w->n_lane)
               : FLEET_OK;
}

/* --- known ---------------------------------------------------------------- */

bool fl_worker_knows_sum(fl_worker *w, double *x, int n, fleet_status *status)
{
    if (!w->trail ||
        !fl_trail_find_reduced(w->trail, w->reduced + 1, x, n, status))
        return false;
    w->reduced++;
    return true;
}

/* A command is a step: what comes before it is through. */
bool fl_worker_knows_command(fl_worker *w, char **answer, fleet_status *status)
{
    if (!w->trail ||
        !fl_trail_find_command(w->trail, w->step + 1, NULL, 0, status))
        return false;
    *status = fl_worker_wait_update(w);
    if (*status == FLEET_OK)
        fl_trail_find_command(w->trail, ++w->step, answer, w->n_lane, status);
    return true;
}

/* Of one that was begun and is not over it is not known what lanes have of it:
 * they get it, and its parts are not used. It was the last call, so that the
 * save may be made as the next one. */
fleet_status fl_worker_knows_save(fl_worker *w, bool *over)
{
    const char *text;
    fleet_status status;

    *over = false;
    if (!w->trail)
        return FLEET_OK;
    FL_TRY(fl_worker_wait_update(w));
    while (!*over && (text = fl_trail_find_save(w->trail, w->step + 1, over,
                                                &status)) != NULL) {
        const fl_trail_call c = {.step = w->step + 1,
                                 .flags = FL_MSG_COMMAND,
                                 .op = FL_SECTION_SAVE,
                                 .text = text};

        if (*over)
            w->step++;
        else
            FL_TRY(fl_worker_call_again(w, &c));
    }
    if (*over && status != FLEET_OK)
        return fl_fail(status, "the save has failed, before this worker was "
                               "started again");
    return FLEET_OK;
}

fleet_status fl_worker_note_saved(fl_worker *w, fleet_status status)
{
    return w->trail ? fl_trail_save_is_over(w->trail, w->step, status)
                    : FLEET_OK;
}

/* --- made again ----------------------------------------------------------- */

/* A piece, as this process says it: of another incarnation, perhaps to another
 * process of the server. */
static fleet_status add_piece(void *arg, uint64_t step, int lane,
                              const fl_packet *p)
{
    fl_worker *w = arg;
    fl_msg_writer writer;
    fl_msg msg;

    FL_TRY(fl_msg_decode(p, &msg));
    if (lane >= w->n_lane)
        return fl_fail(FLEET_ECORRUPT, "lane %d of %d", lane, w->n_lane);
    w->step = step;
    fl_client_begin(w->client, lane, &w->pushing[lane], &writer, FL_MSG_STEP,
                    step, (uint16_t)(msg.head.flags & ~FL_MSG_CRC_ALL));
    fl_msg_copy_sections(&writer, &msg);
    return fl_client_add(w->client, &w->pushing[lane], &writer);
}

void fl_worker_stand(fl_worker *w, uint64_t step, int64_t updates)
{
    w->step = step;
    w->remote.updates = updates;
    w->lacks_weights = true;
}

fleet_status fl_worker_part_again(fl_worker *w, uint64_t step, int lane,
                                  const fl_packet *p)
{
    return add_piece(w, step + 1, lane, p);
}

void fl_worker_end_part_again(fl_worker *w, uint64_t step,
                              const fl_update_settings *settings)
{
    w->step = step + 1;
    w->n_part++;
    w->part_settings = *settings;
}

/* A lane that has applied it says so; in sync the steps of the other
 * workers are waited for. */
static fleet_status push_again(fl_worker *w, int number)
{
    fl_request *before = w->push;

    for (int i = 0; i < w->n_lane; i++)
        fl_request_clear(&w->pushing[i]);
    FL_TRY(fl_trail_each_packet(w->trail, number, add_piece, w));
    for (int i = 0; i < w->n_lane; i++)
        fl_client_send(w->client, &w->pushing[i], fl_worker_now(w));
    w->push = w->pushing;
    w->pushing = before;
    w->pushed = true;
    w->updating = w->remote.sync;
    return w->updating ? fl_worker_update(&w->remote)
                       : fl_worker_wait_update_as(w, "push");
}

/* The weights as a training step gets them, and their version. */
static fleet_status pull_weights(fl_worker *w)
{
    FL_TRY(fl_worker_pull_dense(w, false, false, 0));
    return fl_worker_complete(w, FL_DENSE_SLOT);
}

fleet_status fl_worker_go_on(fl_worker *w)
{
    fl_trail_point from;

    if (!w->trail || !fl_trail_is_early(w->trail))
        return FLEET_OK;
    from = *fl_trail_from(w->trail);
    FL_TRY(fl_worker_wait_update(w));
    for (int i = 0; i < from.n_push; i++)
        FL_TRY(push_again(w, i));
    w->step = from.step;
    w->reduced = from.reduced;
    if (from.has_call) {
        FL_TRY(fl_worker_call_again(w, &from.call));
        w->step = from.call.step;
        w->reduced = from.call.reduced;
    }
    fl_trail_goes_on(w->trail);
    return from.state == FL_TRAIL_MIDDLE ? pull_weights(w) : FLEET_OK;
}

void fl_worker_close_trail(fl_worker_io *l)
{
    if (l->log_folder && !l->left)
        fl_log_end_dead(l->log_folder, l->o.job, l->place.run,
                        &l->o.context->log);
    fl_free(l->log_folder);
    l->log_folder = NULL;
    if (l->trail && l->left)
        (void)fl_trail_end(l->trail); /* else its run is found to be another */
    fl_trail_close(l->trail);
    l->trail = NULL;
}
