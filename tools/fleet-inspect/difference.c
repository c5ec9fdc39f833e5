/* difference.c - saves are gathered whole: a parameter's blocks and a table's
 * rows may stand in any order, in any number of parts. */
#include "difference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

fleet_status print_line(fl_json *line)
{
    char *text = line ? fl_json_print(line, false) : NULL;

    fl_json_free(line);
    if (!text)
        return fl_fail(FLEET_ENOMEM, "out of memory: a line");
    puts(text);
    fl_free(text);
    return FLEET_OK;
}

/* --- one save ------------------------------------------------------------- */

void gathered_done(gathered *g)
{
    for (int i = 0; i < g->n; i++) {
        fl_free(g->item[i].name);
        fl_free(g->item[i].weight);
        fl_free(g->item[i].key);
    }
    fl_free(g->item);
    g->item = NULL;
    g->n = 0;
}

const gathered_item *gathered_find(const gathered *g, bool is_table,
                                   const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (g->item[i].name && g->item[i].is_table == is_table &&
            strcmp(g->item[i].name, name) == 0)
            return &g->item[i];
    return NULL;
}

/* Room for what the parts have been found to hold. */
static fleet_status make_item(gathered *g, int i, const fl_saved_item *from)
{
    gathered_item *to = &g->item[i];
    int64_t each = from->is_table ? from->shape.dim[1] : 1;

    if (g->only && (from->is_table || strcmp(from->name, g->only) != 0))
        return FLEET_OK;
    to->is_table = from->is_table;
    to->shape = from->shape;
    to->n = from->n;
    to->name = fl_strdup(from->name);
    to->weight = fl_alloc_array((size_t)(from->n * each) + 1, sizeof(float));
    if (from->is_table)
        to->key = fl_alloc_array((size_t)from->n + 1, sizeof *to->key);
    return to->name && to->weight && (to->key || !from->is_table)
               ? FLEET_OK
               : fl_fail(FLEET_ENOMEM, "out of memory: \"%s\"", from->name);
}

static void gather_rows(gathered_item *to, const fl_saved_record *r)
{
    const size_t row = (size_t)fl_saved_width(r->item) * sizeof(float);
    const size_t dim = (size_t)to->shape.dim[1];
    const fl_saved_rows at = fl_saved_rows_of(r);

    for (uint64_t i = 0; i < r->head.n; i++, to->n_row++) {
        memcpy(&to->key[to->n_row].key, at.keys + (size_t)i * sizeof i,
               sizeof i);
        to->key[to->n_row].at = to->n_row;
        memcpy(to->weight + (size_t)to->n_row * dim,
               at.values + (size_t)i * row, dim * sizeof(float));
    }
}

typedef struct gathering {
    const fl_saved *s;
    gathered *to;
} gathering;

static fleet_status gather_record(void *arg, const fl_saved_record *r)
{
    const gathering *x = arg;
    bool dense = r->head.kind == FL_RECORD_DENSE;
    gathered_item *to =
        &x->to->item[(int)r->head.item + (dense ? 0 : x->s->n_param)];

    if (!to->name || r->head.kind == FL_RECORD_LIFE)
        return FLEET_OK;
    if (dense)
        memcpy(to->weight + (size_t)r->head.index * FL_BLOCK, r->payload,
               (size_t)r->head.n * sizeof(float));
    else
        gather_rows(to, r);
    return FLEET_OK;
}

static int by_key(const void *a, const void *b)
{
    const gathered_key *x = a, *y = b;

    return (x->key > y->key) - (x->key < y->key);
}

static fleet_status gather(void *arg, fl_saved *s)
{
    gathered *g = arg;
    gathering x = {s, g};

    gathered_done(g); /* another save may have taken the place of the first */
    FL_TRY(FL_NEW(&g->item,
                  ((size_t)(s->n_param + s->n_table) + 1) * sizeof *g->item));
    g->n = s->n_param + s->n_table;
    for (int i = 0; i < g->n; i++)
        FL_TRY(make_item(
            g, i, i < s->n_param ? &s->param[i] : &s->table[i - s->n_param]));
    FL_TRY(fl_saved_each(s, gather_record, &x));
    for (int i = 0; i < g->n; i++)
        if (g->item[i].n_row > 1)
            qsort(g->item[i].key, (size_t)g->item[i].n_row,
                  sizeof *g->item[i].key, by_key);
    return FLEET_OK;
}

fleet_status gather_save(const char *path, gathered *g)
{
    return fl_saved_use(path, NULL, gather, g);
}

/* --- two saves ------------------------------------------------------------ */

/* Of weights that both have. */
typedef struct difference {
    int64_t differ;    /* numbers of which any bit does */
    int64_t nonfinite; /* differences that are no finite number */
    double most, squares, before;
} difference;

/* True: any of them differs. */
static bool compare(difference *d, const float *a, const float *b, int64_t n)
{
    int64_t before = d->differ;

    for (int64_t i = 0; i < n; i++) {
        double by = (double)b[i] - (double)a[i];

        if (isfinite(a[i]))
            d->before += (double)a[i] * (double)a[i];
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        d->differ++;
        d->nonfinite += !isfinite(by);
        if (!isfinite(by))
            continue;
        d->most = fabs(by) > d->most ? fabs(by) : d->most;
        d->squares += by * by;
    }
    return d->differ > before;
}

static void put_difference(fl_json *line, const difference *d)
{
    fl_json_put(line, "differ", fl_json_int(d->differ));
    fl_json_put(line, "most", fl_json_double(d->most, DIGITS));
    fl_json_put(line, "norm", fl_json_double(sqrt(d->squares), DIGITS));
    fl_json_put(line, "norm_before", fl_json_double(sqrt(d->before), DIGITS));
    fl_json_put(line, "nonfinite", fl_json_int(d->nonfinite));
}

typedef struct row_counts {
    int64_t only_before, only_now, differ;
} row_counts;

/* Both by growing key. */
static row_counts compare_rows(difference *d, const gathered_item *a,
                               const gathered_item *b)
{
    const int64_t dim = a->shape.dim[1];
    row_counts n = {0};
    int64_t i = 0, k = 0;

    while (i < a->n_row && k < b->n_row) {
        const gathered_key *x = &a->key[i], *y = &b->key[k];

        if (x->key != y->key) {
            n.only_before += x->key < y->key;
            n.only_now += y->key < x->key;
            i += x->key < y->key;
            k += y->key < x->key;
            continue;
        }
        n.differ +=
            compare(d, a->weight + x->at * dim, b->weight + y->at * dim, dim);
        i++;
        k++;
    }
    n.only_before += a->n_row - i;
    n.only_now += b->n_row - k;
    return n;
}

static fl_json *line_of(const gathered_item *item)
{
    fl_json *line = fl_json_object();

    fl_json_put(line, item->is_table ? "table" : "parameter",
                fl_json_string(item->name));
    return line;
}

static fleet_status print_lonely(const gathered_item *item, const char *path)
{
    fl_json *line = line_of(item);

    fl_json_put(line, "only_in", fl_json_string(path));
    return print_line(line);
}

/* A table's rows may be of any number. */
static bool same_shape(const gathered_item *a, const gathered_item *b)
{
    return a->is_table ? a->shape.dim[1] == b->shape.dim[1]
                       : fl_shape_equal(&a->shape, &b->shape);
}

static fleet_status print_both(const gathered_item *a, const gathered_item *b,
                               bool *same)
{
    fl_json *line = line_of(a);
    difference d = {0};
    row_counts n = {0};

    if (!same_shape(a, b)) {
        *same = false;
        fl_json_put(line, "shape_before",
                    fl_json_string(fl_shape_print(&a->shape).chars));
        fl_json_put(line, "shape",
                    fl_json_string(fl_shape_print(&b->shape).chars));
        return print_line(line);
    }
    if (a->is_table) {
        n = compare_rows(&d, a, b);
        fl_json_put(line, "rows_before", fl_json_int(a->n));
        fl_json_put(line, "rows", fl_json_int(b->n));
        fl_json_put(line, "rows_gone", fl_json_int(n.only_before));
        fl_json_put(line, "rows_new", fl_json_int(n.only_now));
        fl_json_put(line, "rows_differ", fl_json_int(n.differ));
    } else {
        compare(&d, a->weight, b->weight, a->n);
        fl_json_put(line, "n", fl_json_int(a->n));
    }
    *same = *same && d.differ == 0 && n.only_before == 0 && n.only_now == 0;
    put_difference(line, &d);
    return print_line(line);
}

fleet_status print_difference(const char *old, const char *new, bool *same)
{
    gathered a = {0}, b = {0};
    fleet_status status;

    *same = true;
    FL_GOTO(done, gather_save(old, &a));
    FL_GOTO(done, gather_save(new, &b));
    for (int i = 0; i < a.n; i++) {
        const gathered_item *x = &a.item[i];
        const gathered_item *y = gathered_find(&b, x->is_table, x->name);

        *same = *same && y;
        FL_GOTO(done, y ? print_both(x, y, same) : print_lonely(x, old));
    }
    for (int i = 0; i < b.n; i++) {
        const gathered_item *y = &b.item[i];

        if (gathered_find(&a, y->is_table, y->name))
            continue;
        *same = false;
        FL_GOTO(done, print_lonely(y, new));
    }
done:
    gathered_done(&a);
    gathered_done(&b);
    return status;
}
