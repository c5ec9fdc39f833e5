/* fleet-inspect.c - what is in a save; docs/inspect.md. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "fleet/save/load.h"
#include "runtime/life/accessor.h"
#include "fleet-inspect/difference.h"
#include "fleet-inspect/projector.h"

static const char usage[] =
    "usage: fleet-inspect [--row TABLE:KEY]... SAVE\n"
    "       fleet-inspect --values PARAMETER SAVE\n"
    "       fleet-inspect --diff OTHER SAVE\n"
    "       fleet-inspect --projector FOLDER [--table T] [--most N] SAVE\n"
    "\n"
    "Prints what is in a checkpoint, an inference model or the save of a "
    "table, "
    "a line\nof JSON for each parameter and each table: shapes, and how large "
    "the numbers are.\n"
    "  --row TABLE:KEY     prints that row; ends with 1 if there is none\n"
    "  --values PARAMETER  prints its weights, one a line\n"
    "  --diff OTHER        what is other in SAVE than in OTHER; ends with 1 "
    "if\n"
    "                      anything is\n"
    "  --projector FOLDER  writes a table's rows there, as TensorBoard's "
    "projector\n"
    "                      reads them\n"
    "  --table T           of this table, if there are several\n"
    "  --most N            only the N rows that were updated most\n";

enum { MOST_ROWS = 1000 };

typedef struct wanted_row {
    const char *table; /* its name ends at `colon` */
    size_t length;
    uint64_t key;
    bool found;
} wanted_row;

typedef struct inspection {
    const char *path, *values, *other;
    wanted_row row[MOST_ROWS];
    int n_row;
    bool found; /* the parameter of --values */
    projection projected;
} inspection;

/* --- statistics ----------------------------------------------------------- */

/* Of the finite ones among n numbers. m2: the sum of squares of the distances
 * from the mean, put together as Chan, Golub, LeVeque 1979 do. */
typedef struct statistics {
    int64_t n, nonfinite, zeros;
    double least, most, mean, m2, squares;
} statistics;

static void note(statistics *s, double x)
{
    int64_t finite = s->n - s->nonfinite;
    double d = x - s->mean;

    s->n++;
    if (!isfinite(x)) {
        s->nonfinite++;
        return;
    }
    s->zeros += x == 0;
    s->least = finite == 0 || x < s->least ? x : s->least;
    s->most = finite == 0 || x > s->most ? x : s->most;
    s->mean += d / (double)(finite + 1);
    s->m2 += d * (x - s->mean);
    s->squares += x * x;
}

static void note_floats(statistics *s, const char *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x;

        memcpy(&x, at + (size_t)i * sizeof x, sizeof x);
        note(s, (double)x);
    }
}

static void put_statistics(fl_json *to, const statistics *s)
{
    int64_t finite = s->n - s->nonfinite;
    double none = (double)NAN;

    fl_json_put(to, "n", fl_json_int(s->n));
    fl_json_put(to, "least", fl_json_double(finite ? s->least : none, DIGITS));
    fl_json_put(to, "most", fl_json_double(finite ? s->most : none, DIGITS));
    fl_json_put(to, "mean", fl_json_double(finite ? s->mean : none, DIGITS));
    fl_json_put(
        to, "deviation",
        fl_json_double(finite ? sqrt(s->m2 / (double)finite) : none, DIGITS));
    fl_json_put(to, "norm", fl_json_double(sqrt(s->squares), DIGITS));
    fl_json_put(to, "zeros", fl_json_int(s->zeros));
    fl_json_put(to, "nonfinite", fl_json_int(s->nonfinite));
}

/* --- what there is -------------------------------------------------------- */

/* Of the weights, then of each state. */
typedef struct item_numbers {
    statistics of[1 + FL_MAX_NAME];
    statistics row_norm;
} item_numbers;

typedef struct listing {
    item_numbers *param, *table;
} listing;

/* Row by row: dim weights, dim of each state, one number of each row state. */
static void note_row(item_numbers *to, const fl_saved_item *item,
                     const char *at)
{
    const int64_t dim = item->shape.dim[1];
    statistics row = {0};

    note_floats(&row, at, dim);
    note(&to->row_norm, row.nonfinite ? (double)NAN : sqrt(row.squares));
    for (int i = 0; i <= item->n_state + item->n_row; i++) {
        int64_t n = i <= item->n_state ? dim : 1;

        note_floats(&to->of[i], at, n);
        at += (size_t)n * sizeof(float);
    }
}

static fleet_status note_record(void *arg, const fl_saved_record *r)
{
    listing *l = arg;
    const fl_saved_item *item = r->item;
    const size_t row = (size_t)fl_saved_width(item) * sizeof(float);

    if (r->head.kind == FL_RECORD_DENSE) {
        item_numbers *to = &l->param[r->head.item];

        for (int i = 0; i <= item->n_state; i++)
            note_floats(&to->of[i],
                        r->payload + (size_t)i * r->head.n * sizeof(float),
                        (int64_t)r->head.n);
    } else if (r->head.kind == FL_RECORD_ROWS) {
        for (uint64_t i = 0; i < r->head.n; i++)
            note_row(&l->table[r->head.item], item,
                     fl_saved_rows_of(r).values + i * row);
    }
    return FLEET_OK;
}

static fleet_status print_item(const fl_saved_item *item,
                               const item_numbers *numbers)
{
    fl_json *line = fl_json_object(), *states = NULL, *shape = NULL;

    fl_json_put(line, item->is_table ? "table" : "parameter",
                fl_json_string(item->name));
    if (item->is_table) {
        fl_json_put(line, "dim", fl_json_int(item->shape.dim[1]));
        fl_json_put(line, "rows", fl_json_int(item->n));
    } else {
        fl_json_put_array(line, "shape", &shape);
        for (int i = 0; i < item->shape.n_dim; i++)
            fl_json_append(shape, fl_json_int(item->shape.dim[i]));
    }
    put_statistics(line, &numbers->of[0]);
    if (item->is_table) {
        fl_json *norms = fl_json_object();

        put_statistics(norms, &numbers->row_norm);
        fl_json_put(line, "row_norm", norms);
    }
    states = fl_json_object();
    for (int i = 0; i < item->n_state + item->n_row; i++) {
        fl_json *one = fl_json_object();

        put_statistics(one, &numbers->of[1 + i]);
        fl_json_put(states, item->state[i], one);
    }
    FL_TRY(fl_json_put(line, "states", states));
    return print_line(line);
}

static fleet_status print_head(const inspection *x, const fl_saved *s)
{
    static const char *const keys[] = {"what", "library", "isa", "updates"};
    fl_at root = fl_at_root(s->manifest);
    fl_json *line = fl_json_object();

    fl_json_put(line, "save", fl_json_string(x->path));
    for (int i = 0; i < 4; i++) {
        fl_at at = fl_at_key(&root, keys[i]);

        if (at.json)
            fl_json_put(line, keys[i], fl_json_copy(at.json));
    }
    fl_json_put(line, "parameters", fl_json_int(s->n_param));
    fl_json_put(line, "tables", fl_json_int(s->n_table));
    return print_line(line);
}

static fleet_status list(const inspection *x, const fl_saved *s)
{
    listing l = {0};
    fleet_status status;

    FL_GOTO(done, FL_NEW(&l.param, ((size_t)s->n_param + 1) * sizeof *l.param));
    FL_GOTO(done, FL_NEW(&l.table, ((size_t)s->n_table + 1) * sizeof *l.table));
    FL_GOTO(done, fl_saved_each(s, note_record, &l));
    FL_GOTO(done, print_head(x, s));
    for (int i = 0; i < s->n_param; i++)
        FL_GOTO(done, print_item(&s->param[i], &l.param[i]));
    for (int i = 0; i < s->n_table; i++)
        FL_GOTO(done, print_item(&s->table[i], &l.table[i]));
done:
    fl_free(l.param);
    fl_free(l.table);
    return status;
}

/* --- rows and weights ----------------------------------------------------- */

static fl_json *floats(const char *at, int64_t n)
{
    fl_json *list = fl_json_array();

    for (int64_t i = 0; i < n; i++) {
        float x;

        memcpy(&x, at + (size_t)i * sizeof x, sizeof x);
        fl_json_append(list, fl_json_double((double)x, DIGITS));
    }
    return list;
}

static uint64_t key_at(const fl_saved_record *r, uint64_t i)
{
    uint64_t key;

    memcpy(&key, fl_saved_rows_of(r).keys + (size_t)i * sizeof key, sizeof key);
    return key;
}

/* Rows stand by growing key. *at: which one has it. */
static bool find_key(const fl_saved_record *r, uint64_t key, uint64_t *at)
{
    uint64_t low = 0, high = r->head.n;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (key_at(r, middle) < key)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return low < r->head.n && key_at(r, low) == key;
}

static bool is_of(const wanted_row *w, const char *table)
{
    return strlen(table) == w->length &&
           memcmp(table, w->table, w->length) == 0;
}

static void put_key(fl_json *line, const wanted_row *w)
{
    char *name = fl_strndup(w->table, w->length), key[24];

    snprintf(key, sizeof key, "%" PRIu64, w->key);
    fl_json_put(line, "table", name ? fl_json_string(name) : NULL);
    fl_json_put(line, "key", fl_json_string(key));
    fl_free(name);
}

/* fleet_accessor's. */
static void put_counts(fl_json *line, const char *at)
{
    float x[FL_N_ACCESSOR];

    memcpy(x, at, sizeof x);
    if (!fl_is_uncounted(x)) {
        fl_json_put(line, "show",
                    fl_json_double((double)x[FL_AT_SHOW], DIGITS));
        fl_json_put(line, "click",
                    fl_json_double((double)x[FL_AT_CLICK], DIGITS));
        fl_json_put(line, "delta_score",
                    fl_json_double((double)x[FL_AT_DELTA_SCORE], DIGITS));
        fl_json_put(line, "slot", fl_json_int(fl_seen_slot(x[FL_AT_SEEN])));
    }
    fl_json_put(line, "unseen_days",
                fl_json_int(fl_unseen_days(x[FL_AT_SEEN])));
    fl_json_put(line, "has_vector", fl_json_bool(fl_has_vector(x)));
}

/* Row i of the record. */
static fleet_status print_row(const wanted_row *w, const fl_saved_record *r,
                              uint64_t i)
{
    const fl_saved_item *item = r->item;
    const int64_t dim = item->shape.dim[1];
    const fl_saved_rows rows = fl_saved_rows_of(r);
    const char *at =
        rows.values + (size_t)i * (size_t)fl_saved_width(item) * sizeof(float);
    fl_json *line = fl_json_object(), *states = fl_json_object();
    uint32_t n_step;
    int64_t age;

    put_key(line, w);
    memcpy(&n_step, rows.steps + (size_t)i * sizeof n_step, sizeof n_step);
    fl_json_put(line, "updates", fl_json_int((int64_t)n_step));
    if (item->ages) {
        memcpy(&age, rows.ages + (size_t)i * sizeof age, sizeof age);
        fl_json_put(line, "age",
                    age < 0 || age == INT64_MAX
                        ? fl_json_double((double)NAN, DIGITS)
                        : fl_json_int(age));
    }
    fl_json_put(line, "weights", floats(at, dim));
    at += (size_t)dim * sizeof(float);
    for (int k = 0; k < item->n_state + item->n_row; k++) {
        int64_t n = k < item->n_state ? dim : 1;

        fl_json_put(states, item->state[k], floats(at, n));
        at += (size_t)n * sizeof(float);
    }
    if (item->accessor)
        put_counts(line, at);
    FL_TRY(fl_json_put(line, "states", states));
    return print_line(line);
}

static fleet_status look_for_rows(void *arg, const fl_saved_record *r)
{
    inspection *x = arg;
    uint64_t at;

    for (int i = 0; r->head.kind == FL_RECORD_ROWS && i < x->n_row; i++) {
        wanted_row *w = &x->row[i];

        if (!is_of(w, r->item->name) || !find_key(r, w->key, &at))
            continue;
        w->found = true;
        FL_TRY(print_row(w, r, at));
    }
    return FLEET_OK;
}

static fleet_status list_rows(inspection *x, const fl_saved *s)
{
    for (int i = 0; i < x->n_row; i++) {
        const wanted_row *w = &x->row[i];
        bool known = false;

        for (int k = 0; k < s->n_table; k++)
            known = known || is_of(w, s->table[k].name);
        if (!known)
            return fl_fail(FLEET_ENOENT, "%s has no table \"%.*s\"", x->path,
                           (int)w->length, w->table);
        x->row[i].found = false;
    }
    FL_TRY(fl_saved_each(s, look_for_rows, x));
    for (int i = 0; i < x->n_row; i++) {
        fl_json *line;

        if (x->row[i].found)
            continue;
        line = fl_json_object();
        put_key(line, &x->row[i]);
        fl_json_put(line, "weights", fl_json_double((double)NAN, DIGITS));
        FL_TRY(print_line(line));
    }
    return FLEET_OK;
}

/* --- the command ---------------------------------------------------------- */

static fleet_status print_values(const inspection *x)
{
    const gathered_item *item;
    gathered g = {.only = x->values};
    fleet_status status;

    FL_GOTO(done, gather_save(x->path, &g));
    item = gathered_find(&g, false, x->values);
    if (!item)
        FL_GOTO(done, fl_fail(FLEET_ENOENT, "%s has no parameter \"%s\"",
                              x->path, x->values));
    for (int64_t i = 0; i < item->n; i++)
        printf("%.*g\n", DIGITS, (double)item->weight[i]);
done:
    gathered_done(&g);
    return status;
}

static fleet_status inspect_save(void *arg, fl_saved *s)
{
    inspection *x = arg;

    return x->n_row > 0 ? list_rows(x, s) : list(x, s);
}

static bool all_found(const inspection *x)
{
    bool found = true;

    for (int i = 0; i < x->n_row; i++)
        found = found && x->row[i].found;
    return found;
}

static fleet_status inspect(inspection *x, bool *as_asked)
{
    fleet_status status;

    *as_asked = true;
    if (x->values)
        return print_values(x);
    if (x->other)
        return print_difference(x->other, x->path, as_asked);
    if (x->projected.folder)
        return print_projection(x->path, &x->projected);
    status = fl_saved_use(x->path, NULL, inspect_save, x);
    *as_asked = all_found(x);
    return status;
}

/* TABLE:KEY; the name may have a colon, the key has none. */
static bool read_row(const char *text, inspection *x)
{
    const char *colon = strrchr(text, ':');
    wanted_row *w = &x->row[x->n_row];
    char *end;

    if (x->n_row == MOST_ROWS || !colon || colon == text || colon[1] < '0' ||
        colon[1] > '9')
        return false;
    errno = 0;
    *w = (wanted_row){.table = text,
                      .length = (size_t)(colon - text),
                      .key = strtoull(colon + 1, &end, 10)};
    x->n_row++;
    return errno == 0 && *end == 0;
}

static bool read_count(const char *text, int64_t *n)
{
    char *end;

    errno = 0;
    *n = strtoll(text, &end, 10);
    return errno == 0 && *end == 0 && *text >= '0' && *text <= '9' && *n > 0;
}

static bool read_option(int option, const char *text, inspection *x)
{
    switch (option) {
    case 'r':
        return read_row(text, x);
    case 'v':
        x->values = text;
        return true;
    case 'd':
        x->other = text;
        return true;
    case 'p':
        x->projected.folder = text;
        return true;
    case 't':
        x->projected.table = text;
        return true;
    case 'm':
        return read_count(text, &x->projected.most);
    default:
        return false;
    }
}

/* One thing is asked for, and nothing of another one. */
static bool is_one(const inspection *x)
{
    const projection *p = &x->projected;

    return (x->n_row > 0) + !!x->values + !!x->other + !!p->folder <= 1 &&
           (p->folder || (!p->table && p->most == 0));
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"row", required_argument, NULL, 'r'},
        {"values", required_argument, NULL, 'v'},
        {"diff", required_argument, NULL, 'd'},
        {"projector", required_argument, NULL, 'p'},
        {"table", required_argument, NULL, 't'},
        {"most", required_argument, NULL, 'm'},
        {0}};
    static inspection x;
    bool as_asked;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (!read_option(option, optarg, &x))
            return fputs(usage, stderr), 2;
    }
    if (argc - optind != 1 || !is_one(&x))
        return fputs(usage, stderr), 2;
    x.path = argv[optind];
    if (inspect(&x, &as_asked) != FLEET_OK) {
        fflush(stdout);
        fprintf(stderr, "fleet-inspect: %s\n", fleet_last_error());
        return 2;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("fleet-inspect: standard output");
        return 2;
    }
    return as_asked ? 0 : 1;
}
