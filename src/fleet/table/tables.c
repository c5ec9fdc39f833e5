/* tables.c - rows and weights by hand: fleet/table.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fleet/save/table_part.h"
#include "fleet/servers.h"
#include "fleet/table/table_call.h"
#include "runtime/exec/executor.h"
#include "runtime/life/accessor.h"
#include "runtime/reduce/whole_weights.h"

enum { CHUNK_FLOATS = 1 << 18, CHUNK_ROWS = 1 << 16 };

/* --- what there is -------------------------------------------------------- */

static int state_count(const fleet *f, const fl_param *p)
{
    return f->store->optimizer
               ? fl_rule_of(fl_param_optimizer(f->store, p)->kind)->n_state
               : 0;
}

static fleet_parameter_info info_of(const char *name, const fl_shape *shape)
{
    fleet_parameter_info i = {.name = name, .n_dim = shape->n_dim};

    for (int k = 0; k < shape->n_dim; k++)
        i.dims[k] = shape->dim[k];
    return i;
}

fleet_status fleet_parameter_list(fleet *f, fleet_parameter_info *list,
                                  int room, int *n)
{
    const fl_store *s;
    int at = 0;

    FL_TRY(fl_handle_check_worker(f, "fleet_parameter_list"));
    if (!n || room < 0 || (room > 0 && !list))
        return fl_fail(FLEET_EINVAL,
                       "fleet_parameter_list: nowhere to put %d of them", room);
    FL_TRY(fl_add_programs(f));
    s = f->store;
    *n = (int)(s->params.n + s->tables.n);
    for (size_t i = 0; i < s->params.n && at < room; i++) {
        const fl_param *p = s->params.entry[i].value;

        list[at] = info_of(p->name, &p->shape);
        list[at++].n_state = state_count(f, p);
    }
    for (size_t i = 0; i < s->tables.n && at < room; i++) {
        const fl_rows *r = s->tables.entry[i].value;
        fl_shape shape = fl_shape_2(r->modulo, r->dim);

        list[at] = info_of(r->name, &shape);
        list[at].is_table = true;
        list[at].n_state = r->n_state;
        list[at++].n_row_state = r->n_row;
    }
    return FLEET_OK;
}

static fleet_status add_number(const fl_at *root, const char *name,
                               int64_t *sum)
{
    fl_at at = fl_at_key(root, name);
    int64_t x = 0;

    FL_TRY(fl_at_int(&at, 0, FL_MOST_EXACT, &x));
    *sum += x;
    return FLEET_OK;
}

static fleet_status add_stat(const char *text, fleet_table_statistics *stat)
{
    fl_json *json = NULL;
    fleet_status status = fl_json_parse(text, strlen(text), "stat", &json);
    fl_at root = fl_at_root(json);
    int64_t rows = 0;

    FL_GOTO(done, status);
    FL_GOTO(done, add_number(&root, "rows", &rows));
    FL_GOTO(done, add_number(&root, "row_bytes", &stat->row_bytes));
    FL_GOTO(done, add_number(&root, "index_bytes", &stat->index_bytes));
    FL_GOTO(done, add_number(&root, "free_bytes", &stat->free_bytes));
    FL_GOTO(done, add_number(&root, "hot_rows", &stat->hot_rows));
    FL_GOTO(done, add_number(&root, "vector_rows", &stat->vector_rows));
    FL_GOTO(done, add_number(&root, "cold_rows", &stat->cold_rows));
    FL_GOTO(done, add_number(&root, "file_bytes", &stat->file_bytes));
    stat->rows += rows;
    stat->most_rows = rows > stat->most_rows ? rows : stat->most_rows;
done:
    fl_json_free(json);
    return status;
}

fleet_status fleet_table_stat(fleet *f, const char *table,
                              fleet_table_statistics *stat)
{
    fl_answers a = {0};
    fl_rows *rows;
    char *text = NULL;
    fleet_status status;

    FL_TRY(fl_call_table(f, "fleet_table_stat", table, &rows));
    if (!stat)
        return fl_fail(FLEET_EINVAL, "fleet_table_stat: nowhere to put it");
    status = fl_table_stat_text(table, &text);
    if (status == FLEET_OK)
        status = fl_call_read(f, rows, text, &a);
    fl_free(text);
    *stat = (fleet_table_statistics){.dim = rows->dim,
                                     .n_state = rows->n_state,
                                     .n_row_state = rows->n_row,
                                     .parts = a.n};
    for (int i = 0; i < a.n && status == FLEET_OK; i++)
        status = add_stat(a.of[i], stat);
    fl_answers_done(&a);
    return status;
}

/* --- rows ----------------------------------------------------------------- */

/* A call's rows. Of values and states each pair is the caller's memory to read
 * from or to write to. */
typedef struct rows_call {
    fleet *f;
    const char *name;
    fl_rows *rows;
    const uint64_t *key;
    int64_t n;
    const float *values, *states;
    float *to, *states_to;
    int *found;
} rows_call;

static int64_t width_of(const rows_call *c)
{
    bool states = c->states || c->states_to;

    return c->rows->dim + (states ? fl_rows_floats(c->rows) : 0);
}

static int64_t chunk_of(const rows_call *c, int64_t first)
{
    int64_t n = CHUNK_FLOATS / width_of(c), left = c->n - first;

    n = n < 1 ? 1 : n > CHUNK_ROWS ? CHUNK_ROWS : n;
    return n < left ? n : left;
}

static fleet_status check_rows(const rows_call *c, int64_t dim, bool has_values)
{
    const fl_rows *r = c->rows;

    if (c->n < 0 || (c->n > 0 && (!c->key || !has_values)))
        return fl_fail(FLEET_EINVAL,
                       "%s: %lld rows of \"%s\": expected their keys and "
                       "memory for their numbers",
                       c->name, (long long)c->n, r->name);
    if (dim != r->dim)
        return fl_fail(FLEET_ESHAPE,
                       "%s: \"%s\" has rows of %lld numbers, not of %lld",
                       c->name, r->name, (long long)r->dim, (long long)dim);
    if ((c->states || c->states_to) && fl_rows_floats(r) == 0)
        return fl_fail(FLEET_EINVAL, "%s: rows of \"%s\" have no states",
                       c->name, r->name);
    for (int64_t i = 0; r->modulo > 0 && i < c->n; i++)
        if (c->key[i] >= (uint64_t)r->modulo)
            return fl_fail(FLEET_EINVAL,
                           "%s: key %llu: \"%s\" has the rows 0 to %lld",
                           c->name, (unsigned long long)c->key[i], r->name,
                           (long long)r->modulo - 1);
    return FLEET_OK;
}

/* --- get ------------------------------------------------------------------ */

/* The answer of one part: which of the chunk's keys it has, and their rows. */
typedef struct part_rows {
    uint32_t *at, *found;
    float *value;
    int64_t n, n_found, n_value;
} part_rows;

static fleet_status read_part_rows(const fl_json *json, part_rows *p)
{
    fl_at root = fl_at_root(json), at = fl_at_key(&root, "at");
    fl_at found = fl_at_key(&root, "found"),
          values = fl_at_key(&root, "values");

    FL_TRY(fl_at_words(&at, sizeof *p->at, &p->at, &p->n));
    FL_TRY(fl_at_words(&found, sizeof *p->found, &p->found, &p->n_found));
    return fl_at_words(&values, sizeof *p->value, &p->value, &p->n_value);
}

static fleet_status place_rows(const rows_call *c, int64_t first, int64_t n,
                               const part_rows *p)
{
    int64_t width = width_of(c), dim = c->rows->dim, rest = width - dim;

    if (p->n_found != p->n || p->n_value != p->n * width)
        return fl_fail(FLEET_EFORMAT,
                       "%s: %lld rows came with %lld numbers, not %lld",
                       c->name, (long long)p->n, (long long)p->n_value,
                       (long long)(p->n * width));
    for (int64_t i = 0; i < p->n; i++) {
        int64_t to = first + p->at[i];
        const float *row = p->value + i * width;

        if (p->at[i] >= n)
            return fl_fail(FLEET_EFORMAT, "%s: a row came that nobody wants",
                           c->name);
        memcpy(c->to + to * dim, row, (size_t)dim * sizeof *row);
        if (c->states_to)
            memcpy(c->states_to + to * rest, row + dim,
                   (size_t)rest * sizeof *row);
        if (c->found)
            c->found[to] = p->found[i] != 0;
    }
    return FLEET_OK;
}

static fleet_status take_part(const rows_call *c, int64_t first, int64_t n,
                              const char *text, int64_t *came)
{
    fl_json *json = NULL;
    part_rows p = {0};
    fleet_status status = fl_json_parse(text, strlen(text), "rows", &json);

    if (status == FLEET_OK)
        status = read_part_rows(json, &p);
    if (status == FLEET_OK)
        status = place_rows(c, first, n, &p);
    *came += p.n;
    fl_json_free(json);
    fl_free(p.at);
    fl_free(p.found);
    fl_free(p.value);
    return status;
}

static fleet_status get_chunk(const rows_call *c, int64_t first, int64_t n)
{
    fl_answers a = {0};
    char *text = NULL;
    int64_t came = 0;
    fleet_status status = fl_table_rows_text(
        c->rows->name, c->key + first, n, c->states_to != NULL, NULL, 0, &text);

    if (status == FLEET_OK)
        status = fl_call_read(c->f, c->rows, text, &a);
    for (int i = 0; i < a.n && status == FLEET_OK; i++)
        status = take_part(c, first, n, a.of[i], &came);
    if (status == FLEET_OK && came != n)
        status = fl_fail(FLEET_EFORMAT, "%s: %lld of %lld rows came", c->name,
                         (long long)came, (long long)n);
    fl_answers_done(&a);
    fl_free(text);
    return status;
}

fleet_status fleet_table_get(fleet *f, const char *table, const uint64_t *key,
                             int64_t n, int64_t dim, float *values,
                             float *states, int *found)
{
    rows_call c = {.f = f,
                   .name = "fleet_table_get",
                   .key = key,
                   .n = n,
                   .to = values,
                   .states_to = states,
                   .found = found};
    int64_t chunk;

    FL_TRY(fl_call_table(f, c.name, table, &c.rows));
    FL_TRY(check_rows(&c, dim, values != NULL));
    for (int64_t i = 0; i < n; i += chunk) {
        chunk = chunk_of(&c, i);
        FL_TRY(get_chunk(&c, i, chunk));
    }
    return FLEET_OK;
}

/* --- set ------------------------------------------------------------------ */

static fleet_status check_finite(const rows_call *c, const float *x,
                                 int64_t width, const char *what)
{
    for (int64_t i = 0; x && i < c->n * width; i++)
        if (!isfinite(x[i]))
            return fl_fail(FLEET_ENUMERIC, "%s: key %llu, %s %lld: %g", c->name,
                           (unsigned long long)c->key[i / width], what,
                           (long long)(i % width), (double)x[i]);
    return FLEET_OK;
}

/* What a filter has counted of keys is no weight. */
static fleet_status check_counts(const rows_call *c)
{
    for (int64_t i = 0; c->rows->counts && i < c->n * c->rows->dim; i++)
        if (c->values[i] < 0)
            return fl_fail(FLEET_EINVAL,
                           "%s: key %llu, number %lld: %g: \"%s\" has counts, "
                           "expected 0 or more",
                           c->name,
                           (unsigned long long)c->key[i / c->rows->dim],
                           (long long)(i % c->rows->dim), (double)c->values[i],
                           c->rows->name);
    return FLEET_OK;
}

/* The last number of an accessor has parts. */
static fleet_status check_seen(const rows_call *c)
{
    const int64_t width = fl_rows_floats(c->rows);

    if (!c->states || !fl_rows_has_accessor(c->rows))
        return FLEET_OK;
    for (int64_t i = 0; i < c->n; i++) {
        float seen = c->states[(i + 1) * width - 1];

        if (!fl_is_seen(seen))
            return fl_fail(FLEET_EINVAL,
                           "%s: key %llu, number of its states %lld: %g: "
                           "expected what fleet_table_get() gives, a whole "
                           "number of fewer than 2^24",
                           c->name, (unsigned long long)c->key[i],
                           (long long)(width - 1), (double)seen);
    }
    return FLEET_OK;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static fleet_status check_once(const rows_call *c)
{
    uint64_t *sorted;
    fleet_status status = FLEET_OK;

    FL_TRY(FL_NEW(&sorted, ((size_t)c->n + 1) * sizeof *sorted));
    if (c->n > 0) {
        memcpy(sorted, c->key, (size_t)c->n * sizeof *sorted);
        qsort(sorted, (size_t)c->n, sizeof *sorted, by_value);
    }
    for (int64_t i = 1; i < c->n && status == FLEET_OK; i++)
        if (sorted[i] == sorted[i - 1])
            status = fl_fail(FLEET_EINVAL, "%s: key %llu stands twice", c->name,
                             (unsigned long long)sorted[i]);
    fl_free(sorted);
    return status;
}

static fleet_status check_set(const rows_call *c, int64_t dim)
{
    if (!fleet_is_first_worker(c->f))
        return FLEET_OK;
    FL_TRY(check_rows(c, dim, c->values != NULL));
    FL_TRY(check_finite(c, c->values, c->rows->dim, "column"));
    FL_TRY(check_finite(c, c->states, fl_rows_floats(c->rows),
                        "number of its states"));
    FL_TRY(check_seen(c));
    FL_TRY(check_counts(c));
    return check_once(c);
}

/* Weights and states of each row one behind the other, as they travel. */
static fleet_status set_chunk(const rows_call *c, int64_t first, int64_t n)
{
    int64_t width = width_of(c), dim = c->rows->dim, rest = width - dim;
    char *text = NULL;
    float *row;
    fleet_status status;

    FL_TRY(FL_NEW(&row, (size_t)(n * width) * sizeof *row));
    for (int64_t i = 0; i < n; i++) {
        memcpy(row + i * width, c->values + (first + i) * dim,
               (size_t)dim * sizeof *row);
        if (rest > 0)
            memcpy(row + i * width + dim, c->states + (first + i) * rest,
                   (size_t)rest * sizeof *row);
    }
    status = fl_table_rows_text(c->rows->name, c->key + first, n,
                                c->states != NULL, row, width, &text);
    if (status == FLEET_OK)
        status = fl_call_write(c->f, c->rows->remote, text);
    fl_free(text);
    fl_free(row);
    return status;
}

static fleet_status set_rows(void *arg)
{
    const rows_call *c = arg;
    int64_t chunk;

    for (int64_t i = 0; i < c->n; i += chunk) {
        chunk = chunk_of(c, i);
        FL_TRY(set_chunk(c, i, chunk));
    }
    return FLEET_OK;
}

fleet_status fleet_table_set(fleet *f, const char *table, const uint64_t *key,
                             int64_t n, int64_t dim, const float *values,
                             const float *states)
{
    rows_call c = {.f = f,
                   .name = "fleet_table_set",
                   .key = key,
                   .n = n,
                   .values = values,
                   .states = states};
    fleet_status status;

    FL_TRY(fl_handle_check_writer(f, c.name));
    status = fl_call_table(f, c.name, table, &c.rows);
    if (status == FLEET_OK)
        status = check_set(&c, dim);
    return fl_call_together(f, c.name, table, status, set_rows, &c);
}

/* --- dense parameters ----------------------------------------------------- */

typedef struct weights_call {
    fleet *f;
    const char *name;
    const fl_param *param;
    const float *values;
} weights_call;

static fleet_status find_param(fleet *f, const char *call, const char *name,
                               const fl_param **param)
{
    FL_TRY(fl_handle_check_worker(f, call));
    if (!name)
        return fl_fail(FLEET_EINVAL, "%s: the parameter's name is NULL", call);
    FL_TRY(fl_add_programs(f));
    *param = fl_store_param(f->store, name);
    return *param ? FLEET_OK
                  : fl_fail(FLEET_ENOENT, "%s: there is no parameter \"%s\"",
                            call, name);
}

static fleet_status check_weights(const char *call, const fl_param *p,
                                  const float *values, int64_t n)
{
    if (n != p->n)
        return fl_fail(FLEET_ESHAPE, "%s: \"%s\" has %lld weights, not %lld",
                       call, p->name, (long long)p->n, (long long)n);
    return values ? FLEET_OK
                  : fl_fail(FLEET_EINVAL, "%s: \"%s\": the values are NULL",
                            call, p->name);
}

static bool is_remote(const fleet *f, const fl_param *p)
{
    return f->worker_io && fl_param_is_remote(f->store, p);
}

static fleet_status copy_weights(fleet *f, const fl_param *p, float *values)
{
    FL_TRY(fl_store_check(f->store));
    FL_TRY(fl_store_to_host(f->store));
    FL_TRY(fl_whole_weights_locked(f->store));
    if (is_remote(f, p)) {
        fl_remote *x = fl_worker_io_remote(f->worker_io);

        FL_TRY(x->methods->refresh(x));
        fl_store_written(f->store);
    }
    memcpy(values, p->flat->weight + p->offset, (size_t)p->n * sizeof *values);
    return FLEET_OK;
}

fleet_status fleet_parameter_get(fleet *f, const char *name, float *values,
                                 int64_t n)
{
    const fl_param *p;
    fleet_status status;

    FL_TRY(find_param(f, "fleet_parameter_get", name, &p));
    FL_TRY(check_weights("fleet_parameter_get", p, values, n));
    FL_TRY(fl_store_synchronize(f->store));
    pthread_rwlock_wrlock(&f->store->lock);
    status = copy_weights(f, p, values);
    pthread_rwlock_unlock(&f->store->lock);
    return status;
}

static fleet_status check_all_finite(const weights_call *c, int64_t n)
{
    if (!fleet_is_first_worker(c->f))
        return FLEET_OK;
    FL_TRY(check_weights(c->name, c->param, c->values, n));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(c->values[i]))
            return fl_fail(FLEET_ENUMERIC, "%s: \"%s\", weight %lld: %g",
                           c->name, c->param->name, (long long)i,
                           (double)c->values[i]);
    return FLEET_OK;
}

static fleet_status set_weights(void *arg)
{
    const weights_call *c = arg;
    int64_t left;

    for (int64_t i = 0; i < c->param->n; i += CHUNK_FLOATS) {
        char *text = NULL;
        fleet_status status;

        left = c->param->n - i;
        FL_TRY(fl_table_param_text(c->param->name, i, c->values + i,
                                   left < CHUNK_FLOATS ? left : CHUNK_FLOATS,
                                   &text));
        status = fl_call_write(c->f, is_remote(c->f, c->param), text);
        fl_free(text);
        FL_TRY(status);
    }
    return FLEET_OK;
}

fleet_status fleet_parameter_set(fleet *f, const char *name,
                                 const float *values, int64_t n)
{
    weights_call c = {.f = f, .name = "fleet_parameter_set", .values = values};
    fleet_status status;

    FL_TRY(fl_handle_check_writer(f, c.name));
    status = find_param(f, c.name, name, &c.param);
    if (status == FLEET_OK)
        status = check_all_finite(&c, n);
    return fl_call_together(f, c.name, name, status, set_weights, &c);
}
