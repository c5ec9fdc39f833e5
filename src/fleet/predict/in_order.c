/* in_order.c - threads that take batches in their order, and wait for their
 * turns. */
#include "fleet/predict/in_order.h"

#include "base/memory.h"
#include "base/thread.h"
#include "runtime/device/context.h"

typedef struct hand {
    fl_in_order *o;
    pthread_t thread;
    void *worker;
    fl_order_task *task, *hand_on;
} hand;

/* The batch of the next place in the order; FLEET_EEND: there is none. A stream
 * that fails takes a place, too: what was in front of that is handed on. */
static fleet_status take_batch(fl_in_order *o, fl_batch **b, int64_t *place)
{
    fleet_status status = FLEET_EEND;

    pthread_mutex_lock(&o->take);
    if (!o->all_taken)
        status = fl_stream_next(o->stream, b);
    o->all_taken = o->all_taken || status != FLEET_OK;
    if (status != FLEET_EEND)
        *place = o->n_taken++;
    pthread_mutex_unlock(&o->take);
    return status;
}

/* False: an earlier one has failed. */
static bool take_turn(hand *w, const fl_batch *b, int64_t place,
                      fleet_status status)
{
    fl_in_order *o = w->o;
    bool goes_on;

    pthread_mutex_lock(&o->turn);
    while (o->n_done < place && !o->failed)
        pthread_cond_wait(&o->next_turn, &o->turn);
    if (!o->failed) {
        if (status == FLEET_OK)
            status = w->hand_on(w->worker, b);
        if (status != FLEET_OK) {
            fl_error_take(&o->error, status);
            o->failed = true;
        }
        o->n_done++;
        pthread_cond_broadcast(&o->next_turn);
    }
    goes_on = !o->failed;
    pthread_mutex_unlock(&o->turn);
    return goes_on;
}

static void *work_on_batches(void *arg)
{
    hand *w = arg;
    bool goes_on = true;

    while (goes_on) {
        fl_batch *b = NULL;
        int64_t place;
        fleet_status status = take_batch(w->o, &b, &place);

        if (status == FLEET_EEND)
            break;
        if (status == FLEET_OK)
            status = w->task(w->worker, b);
        goes_on = take_turn(w, b, place, status);
        if (b)
            fl_stream_release(w->o->stream, b);
    }
    return NULL;
}

/* A thread that the system refuses is done without, but the first. */
static fleet_status run_hands(hand *w, int n)
{
    fleet_status status = FLEET_OK;
    int started = 0;

    for (; started < n && status == FLEET_OK; started += !status)
        status = fl_thread_start(&w[started].thread, work_on_batches,
                                 &w[started], "scoring");
    for (int i = 0; i < started; i++)
        pthread_join(w[i].thread, NULL);
    if (started == 0)
        return status;
    fl_error_clear();
    return FLEET_OK;
}

fleet_status fl_in_order_run(fl_in_order *o, void *const *worker,
                             fl_order_task *task, fl_order_task *hand_on)
{
    fleet_status status;
    hand *w;

    FL_TRY(FL_NEW(&w, (size_t)o->n_thread * sizeof *w));
    for (int i = 0; i < o->n_thread; i++)
        w[i] = (hand){
            .o = o, .worker = worker[i], .task = task, .hand_on = hand_on};
    status = run_hands(w, o->n_thread);
    fl_free(w);
    FL_TRY(status);
    return o->failed ? fl_error_raise(&o->error) : FLEET_OK;
}

/* A wait for data ends where it is of no use any more. */
static fleet_status goes_on_status(void *arg)
{
    fl_in_order *o = arg;

    return atomic_load(&o->failed) ? FLEET_EEND : FLEET_OK;
}

fleet_status fl_in_order_open(fl_in_order *o, const fl_stream_spec *from,
                              const char *const *paths, int n_path,
                              int n_thread, int64_t batch_size)
{
    fl_stream_spec spec = *from;

    *o = (fl_in_order){.batch_size = batch_size};
    o->n_thread = n_thread > 0 ? n_thread : fl_thread_count(from->log);
    pthread_mutex_init(&o->take, NULL);
    pthread_mutex_init(&o->turn, NULL);
    pthread_cond_init(&o->next_turn, NULL);
    spec.files = paths;
    spec.n_file = n_path;
    spec.n_thread = o->n_thread;
    spec.most_held = o->n_thread + 1;
    spec.batch_size = batch_size;
    spec.job_status = goes_on_status;
    spec.job = o;
    return fl_stream_open(&o->stream, &spec);
}

void fl_in_order_close(fl_in_order *o)
{
    if (o->n_thread == 0) /* it was not opened */
        return;
    fl_stream_close(o->stream);
    pthread_cond_destroy(&o->next_turn);
    pthread_mutex_destroy(&o->turn);
    pthread_mutex_destroy(&o->take);
    *o = (fl_in_order){.n_thread = 0};
}
