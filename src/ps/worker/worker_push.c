/* worker_push.c - pushes: gradients packed for each lane, in pieces, and in
 * sync the wait for the update. */
#include <string.h>

#include "base/memory.h"
#include "ps/worker/hot_pull.h"
#include "ps/worker/worker_group.h"
#include "ps/worker/worker_internal.h"
#include "runtime/store/norm.h"
#include "runtime/simd/simd.h"

/* --- sharing out ---------------------------------------------------------- */

static fleet_status share_out(fl_worker *w, const fl_push_rows *t)
{
    for (int p = 0; p < FL_N_PART; p++) {
        const fl_push_part *part = &t->part[p];

        for (int64_t i = 0; i < part->n; i++) {
            uint64_t key = part->key[part->which ? part->which[i] : i];
            fl_lane_keys *k = fl_worker_keys_for(w, w->push_keys, key);

            if (!k)
                return FLEET_ENOMEM;
            k->key[k->n] = key;
            ((const float **)k->at)[k->n++] = part->grad[i];
        }
    }
    return FLEET_OK;
}

static fleet_status share_out_all(fl_worker *w, const fl_push *p)
{
    for (int l = 0; l < w->n_lane; l++)
        w->push_keys[l].n = 0;
    for (int t = 0; t < w->layout.n_table; t++) {
        for (int l = 0; l < w->n_lane; l++)
            w->push_keys[l].first[t] = w->push_keys[l].n;
        for (int i = 0; i < p->n_table; i++)
            if (p->table[i].rows == w->layout.table[t])
                FL_TRY(share_out(w, &p->table[i]));
    }
    for (int l = 0; l < w->n_lane; l++)
        w->push_keys[l].first[w->layout.n_table] = w->push_keys[l].n;
    return FLEET_OK;
}

/* --- packing -------------------------------------------------------------- */

typedef struct packing {
    fl_worker *w;
    const fl_push *push;
    int lane;
    size_t bytes; /* in the piece that is being written */
    bool open;
    fl_msg_writer writer;
} packing;

static fl_request *request_of(packing *a)
{
    return &a->w->pushing[a->lane];
}

static fleet_status end_piece(packing *a)
{
    a->open = false;
    return fl_client_add(a->w->client, request_of(a), &a->writer);
}

/* A section for `bytes` bytes of values, in this piece or the next. */
static fleet_status begin_section(packing *a, fl_section_op op, int table,
                                  int n, size_t bytes)
{
    fl_section *s;

    if (a->open && (a->bytes + bytes > a->w->piece_bytes ||
                    a->writer.n_section >= FL_MSG_MOST_SECTION - 1))
        FL_TRY(end_piece(a));
    if (!a->open) {
        fl_client_begin(a->w->client, a->lane, request_of(a), &a->writer,
                        FL_MSG_STEP, a->w->step, 0);
        a->bytes = 0;
        a->open = true;
    }
    s = fl_msg_section(&a->writer, op, (uint32_t)table);
    if (s) {
        s->n_key = (uint32_t)n;
        s->version = (uint64_t)a->w->remote.updates;
        s->n_batch = (uint32_t)a->push->n_batch;
    }
    a->bytes += bytes;
    return a->writer.status;
}

/* Servers know no scale of this worker's loss. */
static void divide_scale(const packing *a, void *values, size_t bytes)
{
    float factor = fl_push_factor(a->push);

    if (factor != 1.0f)
        fl_simd_best()->scale(values, values, factor, 0.0f,
                              (int64_t)(bytes / sizeof(float)));
}

static fleet_status pack_rows(packing *a, int table, const uint64_t *key,
                              const float *const *grad, int64_t n)
{
    int64_t dim = a->w->layout.table[table]->dim;
    size_t bytes = (size_t)(n * dim) * sizeof(float);
    void *keys;
    float *values;

    FL_TRY(begin_section(a, FL_SECTION_ROWS, table, (int)n, bytes));
    keys = fl_msg_column(&a->writer, FL_COLUMN_KEYS, (size_t)n * sizeof *key);
    values = fl_msg_column(&a->writer, FL_COLUMN_VALUES, bytes);
    if (!keys || !values)
        return a->writer.status;
    memcpy(keys, key, (size_t)n * sizeof *key);
    fl_simd_best()->gather(&(fl_gather_args){.out = (float *[]){values},
                                             .ld = (int64_t[]){dim},
                                             .row = grad,
                                             .n = n,
                                             .n_feature = 1,
                                             .dim = dim});
    divide_scale(a, values, bytes);
    return FLEET_OK;
}

static fleet_status pack_table(packing *a, int table)
{
    const fl_lane_keys *k = &a->w->push_keys[a->lane];
    int64_t dim = a->w->layout.table[table]->dim;
    int64_t most = (int64_t)a->w->piece_bytes / (dim * (int64_t)sizeof(float));
    int64_t end = k->first[table + 1];

    most = most < 1 ? 1 : most;
    for (int64_t i = k->first[table]; i < end; i += most)
        FL_TRY(pack_rows(a, table, k->key + i, (const float **)k->at + i,
                         end - i < most ? end - i : most));
    return FLEET_OK;
}

/* The lane's blocks of what is pushed: w->push_block and push_grad. */
static int list_blocks(packing *a)
{
    fl_worker *w = a->w;
    const fl_lane_blocks *all = &w->block[a->lane];
    int n = 0;

    for (int i = 0; i < all->n; i++) {
        const float *grad = w->grad_of[all->key[i] >> 32];

        if (!grad)
            continue;
        w->push_block[n] = all->key[i];
        w->push_grad[n++] =
            grad + (int64_t)(all->key[i] & UINT32_MAX) * FL_BLOCK;
    }
    return n;
}

static size_t block_bytes(const fl_worker *w, uint64_t key)
{
    return fl_block_at(&w->layout, key).bytes;
}

static fleet_status pack_blocks(packing *a, int first, int n)
{
    const fl_worker *w = a->w;
    size_t bytes = 0;
    uint64_t *keys;
    char *values;

    for (int i = first; i < first + n; i++)
        bytes += block_bytes(w, w->push_block[i]);
    FL_TRY(begin_section(a, FL_SECTION_DENSE, 0, n, bytes));
    keys = fl_msg_column(&a->writer, FL_COLUMN_KEYS, (size_t)n * sizeof *keys);
    values = fl_msg_column(&a->writer, FL_COLUMN_VALUES, bytes);
    for (int i = 0; keys && values && i < n; i++) {
        size_t one = block_bytes(w, w->push_block[first + i]);

        keys[i] = w->push_block[first + i];
        memcpy(values, w->push_grad[first + i], one);
        divide_scale(a, values, one);
        values += one;
    }
    return a->writer.status;
}

/* The last piece says that it is, of how many batches the step is, and how its
 * update is made. */
static fleet_status close_step(packing *a)
{
    const fl_update_settings *settings = &a->push->settings;
    void *values;

    FL_TRY(begin_section(a, FL_SECTION_CLIP, 0, 0, sizeof *settings));
    a->writer.section[a->writer.n_section - 1].learning_rate = a->push->clip;
    values = fl_msg_column(&a->writer, FL_COLUMN_VALUES, sizeof *settings);
    if (!values)
        return a->writer.status;
    memcpy(values, settings, sizeof *settings);
    a->writer.head.flags = FL_MSG_END_OF_STEP;
    return end_piece(a);
}

static fleet_status pack_lane(packing *a)
{
    int n = list_blocks(a), most = fl_worker_blocks(a->w);

    fl_request_clear(request_of(a));
    for (int i = 0; i < n; i += most)
        FL_TRY(pack_blocks(a, i, n - i < most ? n - i : most));
    for (int i = 0; i < a->w->layout.n_table; i++)
        FL_TRY(pack_table(a, i));
    return close_step(a);
}

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

static fleet_status send_clip(fl_worker *w, int lane, float factor)
{
    fl_request *r = &w->push[lane];
    fl_msg_writer writer;
    fl_section *s;

    fl_request_clear(r);
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
    w->updating = w->clipped = false;
    FL_TRY(fl_worker_wait(w, w->push, w->n_lane, "push"));
    for (int i = 0; i < w->n_lane; i++)
        any_norms = any_norms || w->push[i].status == FL_ANSWER_NORMS;
    if (any_norms)
        FL_TRY(clip_alone(w));
    w->pushed = false;
    for (int i = 0; i < w->n_lane; i++)
        fl_request_clear(&w->push[i]); /* its buffers are used next */
    return fl_worker_complete(w, FL_DENSE_SLOT);
}

static fleet_status pack_push(fl_worker *w, const fl_push *p)
{
    packing a = {.w = w, .push = p};
    fleet_status status = share_out_all(w, p);

    for (int i = 0; i < w->layout.n_param; i++) {
        w->grad_of[i] = NULL;
        for (int j = 0; j < p->n_param; j++)
            if (p->param[j].param == w->layout.param[i])
                w->grad_of[i] = p->param[j].grad;
    }
    for (; status == FLEET_OK && a.lane < w->n_lane; a.lane++)
        status = pack_lane(&a);
    if (status != FLEET_OK && a.open)
        fl_packet_drop(a.writer.packet);
    return status;
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
    if (w->most_under_way > 1)
        FL_TRY(make_before(w));
    w->step++;
    FL_TRY(fl_worker_undo_step(w, w->pushing, pack_push(w, p)));
    FL_TRY(send_push(w));
    fl_hot_pull_pushed(w, p);
    if (!w->remote.sync) {
        w->remote.updates += !w->geo;
        w->n_push++;
    }
    return FLEET_OK;
}

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
    FL_TRY(fl_worker_send_push(w, p));
    w->updating = x->sync;
    return x->sync ? fl_worker_pull_dense(w, true, 0) : FLEET_OK;
}
