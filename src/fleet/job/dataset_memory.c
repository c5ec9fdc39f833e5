/* dataset_memory.c - passes over samples in memory, and in which order. */
#include "fleet/job/dataset_memory.h"

#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"

static const char *const shuffle_keys[FL_N_SHUFFLE] = {
    [FL_SHUFFLE_GLOBAL] = "global_shuffle",
    [FL_SHUFFLE_LOCAL] = "local_shuffle",
    [FL_SHUFFLE_SLOTS] = "slots_shuffle"};

static fleet_status put_moved(const fleet_dataset *d, fl_json *json)
{
    const fl_dataset_memory *m = d->memory;
    fl_json *names;

    if (!m->moved)
        return FLEET_OK;
    FL_TRY(fl_json_put_array(json, "slots", &names));
    for (int i = 0; i < d->n_slot; i++)
        if (m->moved[i])
            FL_TRY(fl_json_append(names, fl_json_string(d->slots[i].name)));
    return FLEET_OK;
}

static fleet_status put_order(const fleet_dataset *d, fl_json *json)
{
    for (int i = 0; i < FL_N_SHUFFLE; i++)
        if (d->memory->of[i] != FL_NEVER)
            FL_TRY(fl_json_put(json, shuffle_keys[i],
                               fl_json_int(d->memory->of[i])));
    return put_moved(d, json);
}

static bool is_shuffled(const fl_dataset_memory *m)
{
    for (int i = 0; i < FL_N_SHUFFLE; i++)
        if (m->of[i] != FL_NEVER)
            return true;
    return false;
}

fleet_status fl_dataset_memory_order(const fleet_dataset *d, fl_json **order)
{
    fleet_status status;

    *order = NULL;
    if (!is_shuffled(d->memory))
        return FLEET_OK;
    *order = fl_json_object();
    status = *order ? put_order(d, *order) : FLEET_ENOMEM;
    if (status != FLEET_OK) {
        fl_json_free(*order);
        *order = NULL;
    }
    return status;
}

fleet_status fl_dataset_shuffle_pass(fleet_dataset *d, fl_shuffle_kind kind,
                                     int64_t *pass)
{
    const fl_json *order;
    fl_position at;
    fl_at root, was;

    FL_TRY(fl_position_next(d, &at, &order));
    *pass = at.pass;
    if (at.batch == 0 || !order)
        return FLEET_OK;
    root = fl_at_root(order);
    was = fl_at_key(&root, shuffle_keys[kind]);
    return fl_at_int(&was, 0, FL_MOST_EXACT, pass);
}

/* --- a pass --------------------------------------------------------------- */

/* A pass that was stopped goes on in its order, or not at all. */
static fleet_status check_order(fl_dataset_memory *m, const fl_json *order)
{
    char *was = m->pass_order ? fl_json_print(m->pass_order, false) : NULL;
    char *is = order ? fl_json_print(order, false) : NULL;
    fleet_status status = FLEET_OK;

    if ((m->pass_order && !was) || (order && !is))
        status = FLEET_ENOMEM;
    else if (strcmp(was ? was : "", is ? is : "") != 0)
        status = fl_fail(
            FLEET_EINVAL,
            "dataset: the pass that goes on had begun with samples in the "
            "order %s, and they are in the order %s: expected the same calls "
            "of shuffles as then",
            was ? was : "of the files", is ? is : "of the files");
    fl_free(was);
    fl_free(is);
    return status;
}

static fleet_status begin_order(fleet_dataset *d)
{
    fl_dataset_memory *m = d->memory;
    fleet_status status;
    fl_json *order;

    FL_TRY(fl_dataset_memory_order(d, &order));
    status = d->at.batch > 0 ? check_order(m, order) : FLEET_OK;
    if (status != FLEET_OK) {
        fl_json_free(order);
        return status;
    }
    fl_json_free(m->pass_order);
    m->pass_order = order;
    return FLEET_OK;
}

static fleet_status check_pass(const fleet_dataset *d, bool shared)
{
    const fl_role *r = &d->fleet->role;

    FL_TRY(fl_dataset_check_worker(d));
    if (!d->memory->loaded)
        return fl_fail(FLEET_ESTATE,
                       "dataset: there are no samples in memory: call "
                       "fleet_dataset_load_into_memory()");
    if (!shared && r->worker_num > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "dataset: memory has the share of worker %d of %d, and "
                       "a pass for test is over all samples: expected a queue "
                       "dataset",
                       r->index, r->worker_num);
    return FLEET_OK;
}

/* In place of files, which were read with all that the options say of them; of
 * max_bad_lines a pass has what the load has left. */
static fl_stream_spec spec_of_view(fleet_dataset *d, fl_memory_view *v,
                                   const fl_paths *files)
{
    fl_stream_spec spec = fl_dataset_spec(d);

    spec.memory = v;
    spec.files = (const char *const *)files->path;
    spec.n_file = (int)files->n;
    spec.cache = NULL;
    spec.pipe_command = NULL;
    return spec;
}

static fl_stream_spec spec_of_memory(fleet_dataset *d)
{
    fl_dataset_memory *m = d->memory;

    /* what another stream reads now is not written */
    if (m->view.memory != &m->held || m->view.moved != m->moved) {
        m->view.memory = &m->held;
        m->view.moved = m->moved;
    }
    return spec_of_view(d, &m->view, &m->held.files);
}

fleet_status fl_dataset_memory_open(fleet_dataset *d, bool shared,
                                    const fl_slot_bounds *bounds,
                                    fl_stream **stream)
{
    fl_stream_spec spec;

    FL_TRY(check_pass(d, shared));
    spec = spec_of_memory(d);
    spec.bounds = bounds;
    if (shared) {
        FL_TRY(fl_position_take(d));
        FL_TRY(begin_order(d));
        spec.first_batch = d->at.batch;
    }
    return fl_stream_open(stream, &spec);
}

fleet_status fl_dataset_memory_open_ahead(fleet_dataset *d,
                                          const fl_slot_bounds *bounds,
                                          int64_t *first, fl_stream **stream)
{
    fl_stream_spec spec;

    FL_TRY(check_pass(d, true));
    spec = spec_of_memory(d);
    spec.bounds = bounds;
    spec.job_status = NULL;
    spec.log = NULL; /* bad lines are said once, by the pass */
    FL_TRY(fl_position_take(d));
    FL_TRY(begin_order(d));
    if (*first == FL_WHERE_IT_IS)
        *first = d->at.batch;
    spec.first_batch = *first;
    return fl_stream_open(stream, &spec);
}

/* --- the next pass -------------------------------------------------------- */

/* Shuffled for each pass, once for several, or not at all. */
static void guess_order(const fleet_dataset *d, fl_next_samples *n)
{
    const fl_dataset_memory *m = d->memory;
    const int64_t of = m->of[FL_SHUFFLE_LOCAL];

    n->shuffled_for = of == d->at.pass ? n->pass : n->preload ? FL_NEVER : of;
    n->view.shuffled = n->shuffled_for != FL_NEVER;
    n->view.order = m->view.order;
    n->seed = fl_dataset_seed(d, n->pass, d->fleet->role.index);
}

/* Of a shuffle of slots nothing is guessed: each slot has the same values. */
bool fl_dataset_memory_next(fleet_dataset *d, bool again, fl_next_samples *n)
{
    fl_dataset_memory *m = d->memory;

    if (!m || (!m->preload && !again))
        return false;
    *n = (fl_next_samples){.preload = m->preload, .pass = d->at.pass + 1};
    if (!m->preload)
        n->again = m->held;
    guess_order(d, n);
    n->spec = spec_of_view(d, &n->view, &n->again.files);
    n->spec.job_status = NULL;
    n->spec.log = NULL; /* as above */
    return true;
}

bool fl_next_samples_wait(fl_next_samples *n, const atomic_bool *stop)
{
    const fl_paths *files = &n->again.files;
    fl_sample_memory *held =
        n->preload ? fl_memory_preload_look(n->preload, stop, &files)
                   : &n->again;

    if (!held)
        return false;
    n->load = held->load;
    n->view.memory = held;
    if (n->shuffled_for == n->pass)
        fl_permutation_init(&n->view.order, held->rows, n->seed);
    n->spec.files = (const char *const *)files->path;
    n->spec.n_file = (int)files->n;
    return true;
}

void fl_next_samples_wake(fl_next_samples *n)
{
    if (n->preload)
        fl_memory_preload_wake(n->preload);
}

bool fl_next_samples_are_there(const fl_next_samples *n)
{
    return !n->preload || fl_memory_preload_is_over(n->preload);
}

fleet_status fl_next_samples_open(fl_next_samples *n,
                                  const fl_slot_bounds *bounds,
                                  fl_stream **stream)
{
    n->spec.bounds = bounds;
    return fl_stream_open(stream, &n->spec);
}

bool fl_dataset_memory_is_next(const fleet_dataset *d, const fl_next_samples *n,
                               bool in_any_order)
{
    const fl_dataset_memory *m = d->memory;

    if (m->held.load != n->load || d->at.pass != n->pass || d->at.batch != 0)
        return false;
    if (in_any_order)
        return true;
    return !m->moved && m->of[FL_SHUFFLE_LOCAL] == n->shuffled_for;
}

fleet_status fl_dataset_memory_check_list(const fleet_dataset *d)
{
    if (d->memory && d->memory->preload)
        return fl_fail(FLEET_ESTATE,
                       "fleet_dataset_set_filelist: files are being read into "
                       "memory: call fleet_dataset_wait_preload_done() before");
    if (d->memory && d->memory->loaded && d->own_slots &&
        d->options.format == FLEET_IDX)
        return fl_fail(FLEET_ESTATE,
                       "fleet_dataset_set_filelist: samples in memory are of "
                       "other images: call fleet_dataset_release_memory() "
                       "before");
    return FLEET_OK;
}

/* --- freed ---------------------------------------------------------------- */

void fl_dataset_memory_release(fl_dataset_memory *m)
{
    fl_sample_memory_done(&m->held);
    fl_free(m->moved);
    m->moved = NULL;
    m->loaded = m->view.shuffled = false;
    m->n_loaded = 0;
    for (int i = 0; i < FL_N_SHUFFLE; i++)
        m->of[i] = FL_NEVER;
}

void fl_dataset_memory_done(fleet_dataset *d)
{
    fl_dataset_memory *m = d->memory;

    if (!m)
        return;
    fl_memory_preload_destroy(m->preload);
    fl_dataset_memory_release(m);
    fl_json_free(m->preload_files);
    fl_json_free(m->files);
    fl_json_free(m->pass_order);
    fl_free(m);
    d->memory = NULL;
}
