/* partition.c - what servers keep, and the bucket of a block. */
#include "ps/partition.h"

#include <string.h>

#include "base/memory.h"

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

/* Of what servers keep, and of nothing else. */
fleet_status fl_partition_make(fl_partition *l, fl_store *store, int n_server)
{
    int n_param, n_table;

    *l = (fl_partition){.store = store, .n_server = n_server};
    l->param = sorted_values(&store->params, &n_param);
    l->table = sorted_values(&store->tables, &n_table);
    if (!l->param || !l->table) {
        fl_partition_done(l);
        return FLEET_ENOMEM;
    }
    for (int i = 0; i < n_param; i++)
        if (fl_param_is_remote(store, l->param[i]))
            l->param[l->n_param++] = l->param[i];
    for (int i = 0; i < n_table; i++)
        if (fl_table_is_remote(&l->table[i]->attr))
            l->table[l->n_table++] = l->table[i];
    return FLEET_OK;
}

void fl_partition_done(fl_partition *l)
{
    fl_free(l->param);
    fl_free(l->table);
    *l = (fl_partition){0};
}

int fl_block_bucket(const fl_store *s, const fl_param *p, int64_t block)
{
    uint64_t name = fl_hash(p->name, strlen(p->name), 0);

    if (s->layerwise.rule != FL_NO_LAYERS)
        block = 0;
    return fl_bucket_of(fl_mix(name + (uint64_t)block));
}

bool fl_lane_keeps_block(const fl_store *s, const void *own, const fl_param *p,
                         int64_t block)
{
    return fl_param_is_remote(s, p) &&
           fl_bucket_set_has(own, fl_block_bucket(s, p, block));
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
