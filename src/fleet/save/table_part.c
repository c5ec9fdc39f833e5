/* table_part.c - rows and weights read and written in one store, as a request
 * says. */
#include "fleet/save/table_part.h"

#include <stdlib.h>
#include <string.h>

#include <fleet/table.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/table_slots.h"
#include "runtime/life/accessor.h"
#include "runtime/life/evict.h"
#include "runtime/lookup/wanted_rows.h"
#include "runtime/store/key_log.h"
#include "runtime/store/table.h"

/* --- requests ------------------------------------------------------------- */

static fleet_status print(fl_json *json, fleet_status status, char **text)
{
    *text = status == FLEET_OK ? fl_json_print(json, false) : NULL;
    fl_json_free(json);
    return *text ? FLEET_OK : FLEET_ENOMEM;
}

fleet_status fl_table_rows_text(const char *table, const uint64_t *key,
                                int64_t n, bool states, const float *values,
                                int64_t width, char **text)
{
    fl_json *json = fl_json_object();
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "op", fl_json_string("rows")));
    FL_GOTO(done, fl_json_put(json, "table", fl_json_string(table)));
    FL_GOTO(done,
            fl_json_put(json, "keys", fl_json_words(key, n, sizeof *key)));
    FL_GOTO(done, fl_json_put(json, "states", fl_json_bool(states)));
    if (values)
        status = fl_json_put(json, "values",
                             fl_json_words(values, n * width, sizeof *values));
done:
    return print(json, status, text);
}

/* With a number of that name, unless it is NULL. */
static fleet_status table_text(const char *op, const char *table,
                               const char *name, int64_t number, char **text)
{
    fl_json *json = fl_json_object();
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "op", fl_json_string(op)));
    FL_GOTO(done, fl_json_put(json, "table", fl_json_string(table)));
    if (name)
        status = fl_json_put(json, name, fl_json_int(number));
done:
    return print(json, status, text);
}

fleet_status fl_table_stat_text(const char *table, char **text)
{
    return table_text("stat", table, NULL, 0, text);
}

fleet_status fl_table_slots_text(const char *table, char **text)
{
    return table_text("slots", table, NULL, 0, text);
}

fleet_status fl_table_shrink_text(const char *table, int64_t now, char **text)
{
    return table_text("shrink", table, "now", now, text);
}

fleet_status fl_table_shows_text(const char *table, int64_t n, char **text)
{
    return table_text("shows", table, "n", n, text);
}

fleet_status fl_table_saved_text(const char *table, fleet_save_mode mode,
                                 char **text)
{
    return table_text("saved", table, "mode", mode, text);
}

fleet_status fl_table_follow_text(const char *table, char **text)
{
    return table_text("follow", table, NULL, 0, text);
}

fleet_status fl_table_param_text(const char *name, int64_t first,
                                 const float *values, int64_t n, char **text)
{
    fl_json *json = fl_json_object();
    fleet_status status;

    FL_GOTO(done, fl_json_put(json, "op", fl_json_string("param")));
    FL_GOTO(done, fl_json_put(json, "name", fl_json_string(name)));
    FL_GOTO(done, fl_json_put(json, "first", fl_json_int(first)));
    status =
        fl_json_put(json, "values", fl_json_words(values, n, sizeof *values));
done:
    return print(json, status, text);
}

/* --- rows ----------------------------------------------------------------- */

enum { CHUNK = 512 }; /* keys that are looked up at a time */

/* A request for rows: of its keys the ones in own buckets, and what comes. */
typedef struct rows_request {
    const fl_store *store;
    fl_rows *rows;
    bool states;
    int64_t width; /* floats that travel of a row */
    uint64_t *key;
    int64_t n_key;
    float *value;
    int64_t n_value;
    uint32_t *at, *found; /* n of them */
    uint64_t *own_key;
    float **row;
    int64_t n;
} rows_request;

static void done_rows(rows_request *r)
{
    fl_free(r->key);
    fl_free(r->value);
    fl_free(r->at);
    fl_free(r->found);
    fl_free(r->own_key);
    fl_free(r->row);
}

static fleet_status find_table(const fl_store *store, const fl_at *root,
                               fl_rows **rows)
{
    fl_at at = fl_at_key(root, "table");
    const char *name = "";

    FL_TRY(fl_at_string(&at, &name));
    *rows = fl_store_rows(store, name);
    return *rows ? FLEET_OK
                 : fl_fail(FLEET_ENOENT, "there is no table \"%.200s\"", name);
}

static fleet_status take_own(rows_request *r, const fl_bucket_set *own)
{
    size_t n = (size_t)r->n_key + 1;

    FL_TRY(FL_NEW(&r->at, n * sizeof *r->at));
    FL_TRY(FL_NEW(&r->found, n * sizeof *r->found));
    FL_TRY(FL_NEW(&r->own_key, n * sizeof *r->own_key));
    FL_TRY(FL_NEW(&r->row, n * sizeof *r->row));
    for (int64_t i = 0; i < r->n_key; i++) {
        if (own && !fl_bucket_set_has(own, fl_bucket_of(fl_mix(r->key[i]))))
            continue;
        r->at[r->n] = (uint32_t)i;
        r->own_key[r->n++] = r->key[i];
    }
    return FLEET_OK;
}

static fleet_status read_rows_request(rows_request *r, const fl_at *root,
                                      const fl_bucket_set *own, bool write)
{
    fl_at keys = fl_at_key(root, "keys"), states = fl_at_key(root, "states");
    fl_at values = fl_at_key(root, "values");

    FL_TRY(find_table(r->store, root, &r->rows));
    FL_TRY(fl_at_bool(&states, &r->states));
    r->width = r->rows->dim + (r->states ? fl_rows_floats(r->rows) : 0);
    FL_TRY(fl_at_words(&keys, sizeof *r->key, &r->key, &r->n_key));
    if (write) {
        FL_TRY(fl_at_words(&values, sizeof *r->value, &r->value, &r->n_value));
        if (r->n_value != r->n_key * r->width)
            return fl_fail(FLEET_EFORMAT,
                           "%lld rows of \"%s\" have %lld numbers, not %lld",
                           (long long)r->n_key, r->rows->name,
                           (long long)(r->n_key * r->width),
                           (long long)r->n_value);
    }
    return take_own(r, own);
}

static void first_row(const rows_request *r, uint64_t key, float *out)
{
    fl_rows_first(r->rows, key, out);
    if (r->states)
        fl_rows_first_states(r->rows, out + r->rows->dim);
}

static fleet_status find_rows(rows_request *r, int64_t first, int64_t end)
{
    FL_TRY(r->rows->methods->find(r->rows, r->own_key + first, end - first,
                                  r->row + first));
    for (int64_t i = first; i < end; i++)
        r->found[i] = r->row[i] != NULL;
    return FLEET_OK;
}

/* Keys first .. end-1, which are in memory. */
static fleet_status copy_rows(rows_request *r, int64_t first, int64_t end)
{
    FL_TRY(find_rows(r, first, end));
    for (int64_t i = first; i < end; i++) {
        float *out = r->value + i * r->width;

        if (r->row[i])
            fl_rows_read_all(r->rows, out, r->row[i], r->states);
        else
            first_row(r, r->own_key[i], out);
    }
    return FLEET_OK;
}

static fleet_status answer_rows(const rows_request *r, char **answer)
{
    fl_json *json = fl_json_object();
    fleet_status status;

    FL_GOTO(done,
            fl_json_put(json, "at", fl_json_words(r->at, r->n, sizeof *r->at)));
    FL_GOTO(done, fl_json_put(json, "found",
                              fl_json_words(r->found, r->n, sizeof *r->found)));
    status =
        fl_json_put(json, "values",
                    fl_json_words(r->value, r->n * r->width, sizeof *r->value));
done:
    return print(json, status, answer);
}

/* Are shows and clicks of rows that are made unknown? */
static bool counts_anew(const rows_request *r)
{
    return !r->states && fl_rows_has_accessor(r->rows);
}

/* A row that is written is one that has changed, as by the next update. Workers
 * that train copies ask for their rows again: the lane's list of changes does
 * not have it. */
static fleet_status write_rows(rows_request *r, int64_t first, int64_t end)
{
    const fl_store *s = r->store;

    if (counts_anew(r))
        FL_TRY(find_rows(r, first, end));
    FL_TRY(r->rows->methods->make(r->rows, r->own_key + first, end - first,
                                  r->row + first));
    for (int64_t i = first; i < end; i++) {
        const float *from = r->value + r->at[i] * r->width;

        fl_live_hash_out(r->rows, &r->own_key[i], &r->row[i], 1);
        fl_rows_write(r->rows, r->row[i], from);
        memcpy(fl_rows_states(r->rows, r->row[i]), from + r->rows->dim,
               (size_t)(r->width - r->rows->dim) * sizeof *from);
        if (counts_anew(r) && !r->found[i])
            fl_accessor_uncounted(&r->rows->life->o.accessor,
                                  fl_accessor_of(r->rows, r->row[i]));
        if (fl_rows_has_accessor(r->rows))
            fl_accessor_find_vector(r->rows, r->row[i]);
        fl_live_hash_in(r->rows, &r->own_key[i], &r->row[i], 1);
        fl_row_of(r->row[i])->changed_at = (uint64_t)s->updates + 1;
        if (r->rows->watch)
            r->rows->watch->row(r->rows->watch, r->rows, r->own_key[i],
                                (uint64_t)s->updates + 1, false);
    }
    return FLEET_OK;
}

/* A few keys at a time: a table with a cap has room for their rows. */
static fleet_status do_chunk(rows_request *r, bool write, int64_t first)
{
    int64_t end = first + CHUNK < r->n ? first + CHUNK : r->n;
    fl_wanted_rows wanted = {0};
    fleet_status status =
        fl_rows_bring(&wanted, r->rows, r->own_key + first, end - first);

    if (status == FLEET_OK)
        status = write ? write_rows(r, first, end) : copy_rows(r, first, end);
    fl_wanted_rows_done(&wanted);
    return status;
}

static fleet_status do_rows(fl_store *store, const fl_bucket_set *own,
                            bool write, const fl_at *root, char **answer)
{
    rows_request r = {.store = store};
    fleet_status status = read_rows_request(&r, root, own, write);

    if (status == FLEET_OK && !write)
        status =
            FL_NEW(&r.value, ((size_t)(r.n * r.width) + 1) * sizeof *r.value);
    for (int64_t i = 0; status == FLEET_OK && i < r.n; i += CHUNK)
        status = do_chunk(&r, write, i);
    if (status == FLEET_OK && write && store->sums)
        fl_rows_next_epoch(r.rows);
    if (status == FLEET_OK && !write)
        status = answer_rows(&r, answer);
    done_rows(&r);
    return status;
}

/* --- the rest ------------------------------------------------------------- */

static fleet_status do_stat(const fl_store *store, const fl_at *root,
                            char **answer)
{
    fl_json *json = fl_json_object();
    uint64_t updates = (uint64_t)store->updates;
    fl_rows_stat stat = {0};
    fl_rows *rows = NULL;
    int64_t hot = 0, vectors = 0;
    fleet_status status;

    FL_GOTO(done, find_table(store, root, &rows));
    FL_GOTO(done, rows->methods->stat(rows, &stat));
    FL_GOTO(done, fl_rows_count_changed(rows,
                                        updates > FLEET_HOT_UPDATES
                                            ? updates - FLEET_HOT_UPDATES
                                            : 0,
                                        &hot));
    FL_GOTO(done, fl_json_put(json, "hot_rows", fl_json_int(hot)));
    FL_GOTO(done, fl_life_count_vectors(rows, &vectors));
    FL_GOTO(done, fl_json_put(json, "vector_rows", fl_json_int(vectors)));
    FL_GOTO(done, fl_json_put(json, "rows", fl_json_int(stat.rows)));
    FL_GOTO(done, fl_json_put(json, "row_bytes",
                              fl_json_int((int64_t)stat.row_bytes)));
    FL_GOTO(done, fl_json_put(json, "index_bytes",
                              fl_json_int((int64_t)stat.index_bytes)));
    FL_GOTO(done, fl_json_put(json, "free_bytes",
                              fl_json_int((int64_t)stat.free_bytes)));
    FL_GOTO(done, fl_json_put(json, "cold_rows", fl_json_int(stat.cold_rows)));
    FL_GOTO(done, fl_json_put(json, "file_bytes",
                              fl_json_int((int64_t)stat.file_bytes)));
    return print(json, FLEET_OK, answer);
done:
    fl_json_free(json);
    return status;
}

int fl_most_shown_first(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return *x > *y ? -1 : *x < *y;
}

typedef struct row_shows {
    const fl_rows *rows;
    float *show;
    size_t n, capacity;
} row_shows;

static fleet_status add_show(void *arg, int bucket, uint64_t key,
                             const float *row)
{
    row_shows *s = arg;

    (void)bucket;
    (void)key;
    FL_TRY(fl_grow(&s->show, &s->capacity, s->n + 1, sizeof *s->show));
    s->show[s->n++] = fl_rows_shown(s->rows, row)[FL_AT_SHOW];
    return FLEET_OK;
}

static fleet_status find_shown(const fl_store *store, const fl_at *root,
                               fl_rows **rows)
{
    FL_TRY(find_table(store, root, rows));
    return fl_rows_has_accessor(*rows)
               ? FLEET_OK
               : fl_fail(FLEET_EINVAL, "table \"%s\" has no accessor",
                         (*rows)->name);
}

/* How often the n rows were shown that were shown most. */
static fleet_status do_shows(const fl_store *store, const fl_at *root,
                             char **answer)
{
    fl_at n_at = fl_at_key(root, "n");
    fl_json *json = NULL;
    row_shows s = {0};
    int64_t n = 0;
    fl_rows *rows;
    fleet_status status;

    FL_TRY(find_shown(store, root, &rows));
    FL_TRY(fl_at_int(&n_at, 0, FL_MOST_EXACT, &n));
    s.rows = rows;
    FL_GOTO(done, rows->methods->each(rows, add_show, &s));
    if (s.n > 1)
        qsort(s.show, s.n, sizeof *s.show, fl_most_shown_first);
    n = n < (int64_t)s.n ? n : (int64_t)s.n;
    json = fl_json_object();
    FL_GOTO(done, fl_json_put(json, "shows",
                              fl_json_words(s.show, n, sizeof *s.show)));
    status = print(json, FLEET_OK, answer);
    json = NULL;
done:
    fl_json_free(json);
    fl_free(s.show);
    return status;
}

/* A save of that mode is in its place. */
static fleet_status do_saved(const fl_store *store, const fl_at *root)
{
    fl_at mode_at = fl_at_key(root, "mode");
    int64_t mode = FLEET_SAVE_ALL;
    fl_rows *rows;

    FL_TRY(find_shown(store, root, &rows));
    FL_TRY(fl_at_int(&mode_at, 0, FLEET_SAVE_DAY_END, &mode));
    return fl_life_saved(rows, (fleet_save_mode)mode);
}

static fleet_status do_follow(const fl_store *store, const fl_at *root)
{
    fl_rows *rows = NULL;

    FL_TRY(find_table(store, root, &rows));
    return fl_key_log_begin(rows);
}

static fleet_status do_slots(const fl_store *store, const fl_at *root,
                             char **answer)
{
    fl_rows *rows = NULL;

    FL_TRY(find_shown(store, root, &rows));
    return fl_table_slots(store, rows, answer);
}

static fleet_status do_shrink(const fl_store *store, const fl_at *root)
{
    fl_at at = fl_at_key(root, "now");
    fl_rows *rows = NULL;
    int64_t now = 0;

    FL_TRY(find_table(store, root, &rows));
    FL_TRY(fl_at_int(&at, 0, FL_MOST_SECONDS, &now));
    return fl_life_shrink(rows, (uint64_t)store->updates, now);
}

/* A part of the weights, of which this store may keep some blocks. */
static void write_weights(const fl_param *p, int64_t first, const float *from,
                          int64_t n)
{
    for (int64_t i = first; i < first + n;) {
        int64_t block = i / FL_BLOCK, in = i % FL_BLOCK;
        float *weights = fl_block_weights(p, block);
        int64_t left = fl_block_size(p, block) - in;
        int64_t count = left < first + n - i ? left : first + n - i;

        if (weights)
            memcpy(weights + in, from + (i - first),
                   (size_t)count * sizeof *from);
        i += count;
    }
}

static fleet_status do_param(const fl_store *store, const fl_at *root)
{
    fl_at name_at = fl_at_key(root, "name"), first_at;
    fl_at values = fl_at_key(root, "values");
    int64_t first = 0, n = 0;
    const char *name = "";
    const fl_param *p;
    float *value = NULL;
    fleet_status status;

    FL_TRY(fl_at_string(&name_at, &name));
    p = fl_store_param(store, name);
    if (!p)
        return fl_fail(FLEET_ENOENT, "there is no parameter \"%.200s\"", name);
    first_at = fl_at_key(root, "first");
    FL_TRY(fl_at_int(&first_at, 0, p->n, &first));
    status = fl_at_words(&values, sizeof *value, &value, &n);
    if (status == FLEET_OK && n > p->n - first)
        status = fl_fail(FLEET_EFORMAT, "\"%s\" has %lld numbers", name,
                         (long long)p->n);
    if (status == FLEET_OK)
        write_weights(p, first, value, n);
    if (status == FLEET_OK && store->watch)
        store->watch->weights(store->watch, name, first, n);
    fl_free(value);
    return status;
}

enum { READ_ROWS, READ_STAT, READ_SHOWS, READ_SLOTS };
enum { WRITE_ROWS, WRITE_PARAM, WRITE_SHRINK, WRITE_SAVED, WRITE_FOLLOW };

static fleet_status dispatch(fl_store *store, const fl_bucket_set *own,
                             bool write, const fl_at *root, char **answer)
{
    static const char *const reads[] = {[READ_ROWS] = "rows",
                                        [READ_STAT] = "stat",
                                        [READ_SHOWS] = "shows",
                                        [READ_SLOTS] = "slots",
                                        NULL};
    static const char *const writes[] = {
        [WRITE_ROWS] = "rows",     [WRITE_PARAM] = "param",
        [WRITE_SHRINK] = "shrink", [WRITE_SAVED] = "saved",
        [WRITE_FOLLOW] = "follow", NULL};
    fl_at op = fl_at_key(root, "op");
    int which = 0;

    FL_TRY(fl_at_required(&op));
    FL_TRY(fl_at_choice(&op, write ? writes : reads, &which));
    if (which == 0)
        return do_rows(store, own, write, root, answer);
    if (write)
        return which == WRITE_PARAM    ? do_param(store, root)
               : which == WRITE_SHRINK ? do_shrink(store, root)
               : which == WRITE_FOLLOW ? do_follow(store, root)
                                       : do_saved(store, root);
    return which == READ_STAT    ? do_stat(store, root, answer)
           : which == READ_SHOWS ? do_shows(store, root, answer)
                                 : do_slots(store, root, answer);
}

fleet_status fl_table_part(fl_store *store, const fl_bucket_set *own,
                           fl_job_command command, const char *text,
                           char **answer)
{
    fl_json *json = NULL;
    fleet_status status;
    fl_at root;

    *answer = NULL;
    FL_TRY(fl_json_parse(text, strlen(text), "request", &json));
    root = fl_at_root(json);
    status = dispatch(store, own, command == FL_COMMAND_WRITE, &root, answer);
    fl_json_free(json);
    if (status == FLEET_OK && !*answer)
        status = (*answer = fl_strdup("written")) ? FLEET_OK : FLEET_ENOMEM;
    return status;
}
