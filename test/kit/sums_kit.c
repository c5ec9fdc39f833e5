/* sums_kit.c - see sums_kit.h. */
#define SUITE sums_kit
#include "sums_kit.h"

#include <stdio.h>
#include <stdlib.h>

#include "test.h"

fleet_var *sums_build(ps_node *n, const fleet_options *o,
                      const fleet_distributed_strategy *s)
{
    const fleet_sparse_embedding_options zero = {
        .table = "t", .initializer = {FLEET_INIT_CONSTANT, 0, 0}};
    fleet_var *id;

    CHECK_OK(fleet_init(&n->s.f, o));
    n->s.p = fleet_program_create(n->s.f);
    id = fleet_data(n->s.p, "id", FLEET_INT64, (int64_t[]){-1, 1}, 2);
    n->s.m.loss =
        fleet_mean(n->s.p, fleet_sparse_embedding(n->s.p, id, 1, &zero));
    CHECK_OK(fleet_minimize(
        fleet_distributed_optimizer(n->s.f, fleet_sgd(n->s.f, 1.0f), s),
        n->s.m.loss));
    return id;
}

int64_t sums_lease_lines;

void sums_read(ps_node *n, fleet_var *id, const char *const *files, int n_file,
               int64_t batch)
{
    if (n->server)
        return;
    n->s.data = fleet_queue_dataset(
        n->s.f, &(fleet_dataset_options){.batch_size = batch,
                                         .lease_lines = sums_lease_lines,
                                         .use_var = &id,
                                         .n_use_var = 1});
    CHECK(n->s.data != NULL);
    CHECK_OK(fleet_dataset_set_filelist(n->s.data, files, n_file));
}

const char *sums_file(int lines)
{
    char *text = malloc((size_t)lines * 8), *end = text;
    const char *path;

    for (int i = 0; i < lines; i++)
        end += sprintf(end, "1 %d\n", i * 7 % SUMS_KEYS);
    path = test_file("ids.txt", text);
    free(text);
    return path;
}
