/* partition.c - blocks and rows shared out over buckets, buckets over servers
 * and lanes. */
#include "ps/partition.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* The values of a map in name order, for fl_free(). */
static void *sorted_values(const fl_map *m, int *n)
{
    fl_map_entry *e = fl_map_sorted(m);
    void **value = e ? fl_alloc_array(m->n + 1, sizeof *value) : NULL;

    for (size_t i = 0; value && i < m->n; i++)
        value[i] = e[i].value;
    *n = (int)m->n;
    fl_free(e);
    return value;
}

/* What servers keep, and nothing else. */
static void leave_out(fl_partition *l)
{
    int n_param = 0, n_table = 0;

    for (int i = 0; i < l->n_param; i++)
        if (fl_param_is_remote(l->store, l->param[i]))
            l->param[n_param++] = l->param[i];
    for (int i = 0; i < l->n_table; i++)
        if (fl_table_is_remote(&l->table[i]->attr))
            l->table[n_table++] = l->table[i];
    l->n_param = n_param;
    l->n_table = n_table;
}

fleet_status fl_partition_make(fl_partition *l, fl_store *store, int n_server)
{
    *l = (fl_partition){.store = store, .n_server = n_server};
    l->param = sorted_values(&store->params, &l->n_param);
    l->table = sorted_values(&store->tables, &l->n_table);
    if (l->param && l->table) {
        leave_out(l);
        return FLEET_OK;
    }
    fl_partition_done(l);
    return FLEET_ENOMEM;
}

void fl_partition_done(fl_partition *l)
{
    fl_free(l->param);
    fl_free(l->table);
    *l = (fl_partition){0};
}

int64_t fl_block_size(const fl_param *p, int64_t block)
{
    int64_t left = p->n - block * FL_BLOCK;

    if (block < 0 || block >= fl_blocks_of(p))
        return 0;
    return left < FL_BLOCK ? left : FL_BLOCK;
}

int fl_block_bucket(const fl_param *p, int64_t block)
{
    uint64_t name = fl_hash(p->name, strlen(p->name), 0);

    return fl_bucket_of(fl_mix(name + (uint64_t)block));
}

static fl_buckets share_buckets(fl_buckets all, int i, int n)
{
    int size = all.end - all.first;

    return (fl_buckets){all.first + i * size / n,
                        all.first + (i + 1) * size / n};
}

fl_buckets fl_server_buckets(int server, int n_server)
{
    return share_buckets((fl_buckets){0, FL_N_BUCKET}, server, n_server);
}

fl_buckets fl_lane_buckets(int server, int n_server, int lane, int n_lane)
{
    return share_buckets(fl_server_buckets(server, n_server), lane, n_lane);
}

int fl_partition_param(const fl_partition *l, const char *name)
{
    for (int i = 0; i < l->n_param; i++)
        if (strcmp(l->param[i]->name, name) == 0)
            return i;
    return -1;
}

int fl_partition_table(const fl_partition *l, const char *name)
{
    for (int i = 0; i < l->n_table; i++)
        if (strcmp(l->table[i]->name, name) == 0)
            return i;
    return -1;
}

/* --- what two processes must have in common ------------------------------- */

static void add_attr(fl_text *t, const fleet_param_attr *a)
{
    const fleet_initializer *first = &a->initializer;

    fl_text_add(t, ", rate %.9g, decay %.9g%s, first %d %.9g %.9g",
                (double)a->learning_rate, (double)a->l2_decay,
                a->no_decay ? " none" : "", (int)first->kind, (double)first->a,
                (double)first->b);
}

static void add_optimizer(fl_text *t, const fleet_optimizer *o)
{
    fl_text_add(t,
                "optimizer %s %.9g, %.9g %.9g %.9g %d, first %.9g, decay %.9g, "
                "clip %.9g, schedule %d %.9g %" PRId64 " %d",
                fl_rule_of(o->kind)->name, (double)o->learning_rate,
                (double)o->a, (double)o->b, (double)o->epsilon, o->nesterov,
                (double)o->initial_state, (double)o->l2_decay,
                (double)o->clip_norm, (int)o->decay, (double)o->rate,
                o->decay_steps, o->staircase);
    for (int i = 0; i < o->n_boundary; i++)
        fl_text_add(t, " %" PRId64 ":%.9g", o->boundary[i],
                    (double)o->value[i]);
    fl_text_add(t, "\n");
}

/* In whose hands it is, where the mode says otherwise. */
static void add_param(fl_text *t, const fl_store *s, const fl_param *p)
{
    fl_text_add(t, "parameter \"%s\" %s", p->name,
                fl_shape_print(&p->shape).chars);
    add_attr(t, &p->attr);
    fl_text_add(t, "%s\n",
                s->dense_local && fl_param_is_remote(s, p) ? ", on servers"
                                                           : "");
}

static void add_table(fl_text *t, const fl_rows *r)
{
    fl_text_add(t, "table \"%s\" of %" PRId64 " by %" PRId64, r->name,
                r->modulo, r->dim);
    add_attr(t, &r->attr);
    fl_text_add(t, "%s\n", fl_table_is_remote(&r->attr) ? "" : ", by ranks");
}

static fleet_status add_all(fl_text *t, const fl_store *s)
{
    fl_map_entry *param = fl_map_sorted(&s->params),
                 *table = fl_map_sorted(&s->tables);

    for (size_t i = 0; param && table && i < s->params.n; i++)
        add_param(t, s, param[i].value);
    for (size_t i = 0; param && table && i < s->tables.n; i++)
        add_table(t, table[i].value);
    fl_free(param);
    fl_free(table);
    return param && table ? FLEET_OK : FLEET_ENOMEM;
}

char *fl_job_signature_text(const fl_store *s)
{
    fl_text t = {0};
    fleet_status status;

    fl_text_add(&t, "seed %" PRIu64 "\n", s->context->seed);
    status = add_all(&t, s);
    if (s->optimizer)
        add_optimizer(&t, s->optimizer);
    if (status == FLEET_OK && t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}

char *fl_job_signature_difference(const char *us, const char *ours,
                                  const char *them, const char *theirs)
{
    fl_text t = {0};

    while (*ours || *theirs) {
        size_t a = strcspn(ours, "\n"), b = strcspn(theirs, "\n");

        if (a != b || strncmp(ours, theirs, a) != 0) {
            fl_text_add(&t, "%s has `%.*s`, %s `%.*s`", us,
                        a < 300 ? (int)a : 300, ours, them,
                        b < 300 ? (int)b : 300, theirs);
            return t.chars;
        }
        ours += a + (ours[a] == '\n');
        theirs += b + (theirs[b] == '\n');
    }
    return NULL;
}
