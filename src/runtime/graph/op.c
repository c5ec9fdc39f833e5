/* op.c - names of kinds; attributes of nodes, by name. */
#include "runtime/graph/op.h"

#include <string.h>

const char *const fl_var_kind_names[] = {"data",  "param", "table",
                                         "state", "temp",  NULL};
const char *const fl_fresh_names[] = {"initial", "zeros", "row", NULL};
const char *const fl_storage_names[] = {"float32", "float16", "bfloat16",
                                        "int8", NULL};

const fl_attr *fl_node_attr(const fl_node *n, const char *name)
{
    for (int i = 0; i < n->n_attr; i++)
        if (strcmp(n->attr[i].name, name) == 0)
            return &n->attr[i];
    return NULL;
}

int64_t fl_node_int(const fl_node *n, const char *name)
{
    return fl_node_attr(n, name)->i;
}

double fl_node_float(const fl_node *n, const char *name)
{
    return fl_node_attr(n, name)->f;
}
