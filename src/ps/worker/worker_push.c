/* worker_push.c - pushes: steps that are sent, in sync the wait for the update,
 * and the clip. worker_pack.c writes them. */
#include <string.h>

#include "base/memory.h"
#include "ps/worker/hot_pull.h"
#include "ps/residuals.h"
#include "ps/worker/worker_group.h"
#include "ps/worker/worker_internal.h"
#include "runtime/store/norm.h"

/* --- the update ----------------------------------------------------------- */

/* Wait for the oldest pushes before push[], until `most` are left. One that has
 * failed stays: each later wait fails, too. */
static fleet_status wait_for_oldest(fl_worker *w, int most)
{
    while (w->n_before > most) {
        fl_request *oldest = w->before[0];

        FL_TRY(fl_worker_wait(w, oldest, w->n_lane, "push"));
        for (int i = 0; i < w->n_lane; i++)
            fl_request_clear(&oldest[i]); /* its buffers are used next */
        w->n_before--;
        memmove(w->before, w->before + 1,
                (size_t)(w->n_made - 1) * sizeof *w->before);
        w->before[w->n_made - 1] = oldest;
    }
    return FLEET_OK;
}

/* A step that has failed is over: a save that found no room is no reason for
 * the next step to fail. One that was refused is refused for good. */
fleet_status fl_worker_wait_update_as(fl_worker *w, const char *what)
{
    bool refused = false;
    fleet_status status;

    FL_TRY(wait_for_oldest(w, 0));
    if (!w->pushed)
        return FLEET_OK;
    status = fl_worker_wait(w, w->push, w->n_lane, what);
    for (int i = 0; i < w->n_lane; i++)
        refused = refused || w->push[i].status == FL_ANSWER_REFUSED;
    w->pushed = refused;
    return status;
}

fleet_status fl_worker_wait_update(fl_worker *w)
{
    if (w->updating)
        return fl_worker_update(&w->remote);
    FL_TRY(fl_group_flush(w));
    return fl_worker_wait_update_as(w, "push");
}

/* A step that could not be made was none. */
fleet_status fl_worker_undo_step(fl_worker *w, fl_request *made,
                                 fleet_status status)
{
    if (status == FLEET_OK)
        return FLEET_OK;
    for (int i = 0; i < w->n_lane; i++)
        fl_request_clear(&made[i]);
    w->step--;
    return status;
}

/* The squares of the item with that number: parameters, then tables; n is 0 if
 * there is none. */
static double *norms_of(const fl_worker *w, const fl_norm_list *all,
                        uint64_t number, int64_t *n)
{
    const fl_partition *l = &w->layout;
    uint64_t table = number - (uint64_t)l->n_param;

    *n = 0;
    if (number < (uint64_t)l->n_param)
        return fl_norm_list_of(all, l->param[number], n);
    return table < (uint64_t)l->n_table
               ? fl_norm_list_of(all, l->table[table], n)
               : NULL;
}

static fleet_status put_norms(const fl_worker *w, const fl_section *s,
                              const fl_frame *column, fl_norm_list *all)
{
    const char *values = column[FL_AT_VALUES].data;
    uint64_t item = UINT64_MAX; /* whose squares `to` has */
    double *to = NULL;
    int64_t n = 0;

    for (uint32_t i = 0; i < s->n_key; i++) {
        uint64_t key = fl_key_at(&column[FL_AT_KEYS], i);
        int64_t at = (int64_t)(key & UINT32_MAX);

        if (key >> 32 != item)
            to = norms_of(w, all, item = key >> 32, &n);
        if (at >= n)
            return fl_fail(FLEET_EFORMAT, "a norm of nothing");
        memcpy(&to[at], values + i * sizeof *to, sizeof *to);
    }
    return FLEET_OK;
}

static fleet_status take_norms(fl_worker *w, int lane, fl_norm_list *all)
{
    const fl_msg *msg = fl_client_answer(w->client, &w->push[lane]);

    if (!msg || msg->head.n_section != 1 ||
        msg->section[0].op != FL_SECTION_NORMS ||
        msg->column[0][FL_AT_KEYS].size !=
            msg->section[0].n_key * sizeof(uint64_t) ||
        msg->column[0][FL_AT_VALUES].size !=
            msg->section[0].n_key * sizeof(double))
        return fl_fail(FLEET_EFORMAT, "%s has sent no norms",
                       fl_client_lane_name(w->client, lane));
    return put_norms(w, &msg->section[0], msg->column[0], all);
}

static fleet_status clip_factor(fl_worker *w, fl_norm_list *all, float *factor)
{
    for (int i = 0; i < w->n_lane; i++)
        FL_TRY(take_norms(w, i, all));
    *factor = fl_norm_list_clip(all, w->layout.store);
    return FLEET_OK;
}

/* Behind the step, which stays: a lane that was made again from its journal has
 * not applied it, and has to get it anew. */
static fleet_status send_clip(fl_worker *w, int lane, float factor)
{
    fl_request *r = &w->push[lane];
    fl_msg_writer writer;
    fl_section *s;

    fl_request_go_on(w->client, r);
    fl_client_begin(w->client, lane, r, &writer, FL_MSG_CLIP, w->step, 0);
    s = fl_msg_section(&writer, FL_SECTION_CLIP, 0);
    if (s)
        s->learning_rate = factor;
    FL_TRY(fl_client_add(w->client, r, &writer));
    fl_client_send(w->client, r, fl_worker_now(w));
    return FLEET_OK;
}

/* A lane that has applied the step already says with which factor: another
 * worker was faster. */
static bool known_factor(fl_worker *w, float *factor)
{
    for (int i = 0; i < w->n_lane; i++) {
        const fl_msg *msg = fl_client_answer(w->client, &w->push[i]);

        if (msg && msg->head.status == FL_ANSWER_OK &&
            msg->head.n_section == 1 && msg->section[0].op == FL_SECTION_CLIP) {
            *factor = msg->section[0].learning_rate;
            return true;
        }
    }
    return false;
}

/* Its answers are the push's. */
static fleet_status send_clips(fl_worker *w, fl_norm_list *all, float *factor)
{
    if (!known_factor(w, factor))
        FL_TRY(clip_factor(w, all, factor));
    for (int i = 0; i < w->n_lane; i++)
        if (w->push[i].status == FL_ANSWER_NORMS)
            FL_TRY(send_clip(w, i, *factor));
    return FLEET_OK;
}

/* Where servers keep all that there is. */
static fleet_status clip_alone(fl_worker *w)
{
    fl_norm_list all;
    float factor;
    fleet_status status;

    FL_TRY(fl_norm_list_make(&all, w->layout.store));
    status = send_clips(w, &all, &factor);
    fl_norm_list_done(&all);
    FL_TRY(status);
    return fl_worker_wait(w, w->push, w->n_lane, "clip");
}

/* On success the update is made, and the weights after it have come. */
fleet_status fl_worker_update(fl_remote *x)
{
    fl_worker *w = (fl_worker *)(void *)x;
    bool any_norms = false;

    if (!w->updating)
        return FLEET_OK;
    w->updating = w->clipped = x->stops = false;
    FL_TRY(fl_worker_wait(w, w->push, w->n_lane, "push"));
    for (int i = 0; i < w->n_lane; i++)
        any_norms = any_norms || w->push[i].status == FL_ANSWER_NORMS;
    if (any_norms)
        FL_TRY(clip_alone(w));
    w->pushed = false;
    for (int i = 0; i < w->n_lane; i++) {
        x->stops = x->stops || w->push[i].stops;
        fl_request_clear(&w->push[i]); /* its buffers are used next */
    }
    return fl_worker_complete(w, FL_DENSE_SLOT);
}

/* Room for one more push that is under way. */
static fleet_status make_before(fl_worker *w)
{
    if (w->n_before < w->n_made)
        return FLEET_OK;
    FL_TRY(fl_grow(&w->before, &w->before_capacity, (size_t)w->n_made + 1,
                   sizeof *w->before));
    FL_TRY(
        FL_NEW(&w->before[w->n_made], (size_t)w->n_lane * sizeof **w->before));
    w->n_made++;
    return FLEET_OK;
}

/* push[] is one of those before. */
static void put_push_before(fl_worker *w)
{
    fl_request *unused = w->before[w->n_before];

    w->before[w->n_before++] = w->push;
    w->push = unused;
    w->pushed = false;
}

/* The oldest pushes are waited for when this one is on its way, so that the
 * servers have work meanwhile, until no more than most_under_way are left. If
 * one of them failed, this one is not made. */
static fleet_status send_push(fl_worker *w)
{
    fl_request *before;
    fleet_status status;

    for (int i = 0; i < w->n_lane; i++)
        fl_client_send(w->client, &w->pushing[i], fl_worker_now(w));
    if (w->most_under_way > 1 && w->pushed)
        put_push_before(w);
    status = w->most_under_way > 1 ? wait_for_oldest(w, w->most_under_way - 1)
                                   : fl_worker_wait_update_as(w, "push");
    for (int i = 0; status != FLEET_OK && i < w->n_lane; i++)
        fl_client_cancel(w->client, &w->pushing[i]);
    FL_TRY(status);
    before = w->push;
    w->push = w->pushing;
    w->pushing = before;
    w->pushed = true;
    return FLEET_OK;
}

/* The gradients are on the servers then, which wait for the factor; the push
 * after it has nothing left to do. */
fleet_status fl_worker_clip(fl_remote *x, const fl_push *p, fl_norm_list *all,
                            float *factor)
{
    fl_worker *w = (fl_worker *)(void *)x;

    w->clipped = false;
    FL_TRY(fl_worker_push(x, p));
    FL_TRY(fl_worker_wait(w, w->push, w->n_lane, "push"));
    FL_TRY(send_clips(w, all, factor));
    w->clipped = true;
    return FLEET_OK;
}

fleet_status fl_worker_send_push(fl_worker *w, const fl_push *p)
{
    const bool begins = w->n_part == 0;

    if (w->most_under_way > 1)
        FL_TRY(make_before(w));
    w->step += begins;
    w->n_part = 0;
    FL_TRY(fl_worker_undo_step(
        w, w->pushing,
        fl_worker_pack(w, p, FL_STEP_ENDS | (begins ? FL_STEP_BEGINS : 0))));
    FL_TRY(fl_worker_undo_step(w, w->pushing, fl_worker_note_push(w)));
    FL_TRY(send_push(w));
    fl_hot_pull_pushed(w, p);
    if (w->residuals)
        fl_residuals_keep(w->residuals);
    if (!w->remote.sync) {
        w->remote.updates += !w->geo;
        w->n_push++;
    }
    return FLEET_OK;
}

/* --- steps of several pushes ---------------------------------------------- */

/* It waits for the step's end: what the servers get of a step in parts they
 * would have to answer in parts. */
static fleet_status add_part(fl_worker *w, const fl_push *p)
{
    const bool begins = w->n_part == 0;
    fleet_status status;

    for (int i = 0; w->packets && i < w->n_lane; i++)
        w->packets[i].n = begins ? 0 : w->pushing[i].n_piece;
    w->step += begins;
    status = fl_worker_undo_step(
        w, w->pushing, fl_worker_pack(w, p, begins ? FL_STEP_BEGINS : 0));
    w->n_part = status == FLEET_OK ? w->n_part + 1 : 0;
    w->part_settings = p->settings;
    fl_hot_pull_pushed(w, p);
    for (int i = 0; w->packets && i < w->n_lane; i++) {
        const int before = w->packets[i].n;

        w->packets[i] = (fl_trail_packets){w->pushing[i].piece + before,
                                           w->pushing[i].n_piece - before};
    }
    return status;
}

const fl_trail_packets *fl_worker_last_part(const fl_worker *w)
{
    return w->packets;
}

fleet_status fl_worker_end_step(fl_worker *w)
{
    const fl_push end = {.settings = w->part_settings, .clip = 1};

    FL_TRY(fl_client_status(w->client));
    if (w->n_part == 0)
        return fl_fail(FLEET_ESTATE, "a step without a push cannot end");
    FL_TRY(fl_worker_send_push(w, &end));
    w->updating = true;
    FL_TRY(fl_worker_pull_dense(w, true, false, 0));
    return fl_worker_update(&w->remote);
}

/* --- a push --------------------------------------------------------------- */

fleet_status fl_worker_push(fl_remote *x, const fl_push *p)
{
    fl_worker *w = (fl_worker *)(void *)x;

    if (w->clipped) {
        w->clipped = false;
        return FLEET_OK;
    }
    FL_TRY(fl_client_status(w->client));
    if (!x->sync && p->n_batch == 0)
        return FLEET_OK; /* another rank's update: nothing to apply */
    if (x->sync)         /* a pass's end: a step that other workers hold up */
        FL_TRY(fl_worker_wait_update(w));
    if (w->group.how.merged > 0)
        return fl_group_add(w, p);
    if (w->by_parts)
        return add_part(w, p);
    FL_TRY(fl_worker_send_push(w, p));
    w->updating = x->sync;
    return x->sync ? fl_worker_pull_dense(w, true, false, 0) : FLEET_OK;
}
