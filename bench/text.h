/* text.h - a model's batches as MultiSlot text, and a dataset that reads it. */
#pragma once

#include "model.h"

static inline void write_sample(FILE *f, const bench *b, int i, int j)
{
    int n = b->o.batch, width = is_mlp(b) ? MLP_IN : N_DENSE;

    fprintf(f, "1 %d %d", (int)b->label[i][j], width);
    for (int k = 0; k < width; k++)
        fprintf(f, " %.6f", (double)b->dense[i][j * width + k]);
    for (int s = 0; s < N_ID && !is_mlp(b); s++)
        fprintf(f, " 1 %lld", (long long)b->id[i][s * n + j]);
    fputc('\n', f);
}

static inline void write_text(const bench *b, const char *path)
{
    FILE *f = fopen(path, "w");

    for (int i = 0; f && i < b->n_batch; i++)
        for (int j = 0; j < b->o.batch; j++)
            write_sample(f, b, i, j);
    if (!f || fclose(f) != 0)
        perror(path), exit(1);
}

static inline fleet_dataset *open_text(bench *b, const char *const *path, int n)
{
    fleet_slot slot[N_ID + 2] = {{.name = "label", .dtype = FLEET_INT64},
                                 {.name = is_mlp(b) ? "image" : "dense_input",
                                  .dim = is_mlp(b) ? MLP_IN : N_DENSE}};
    fleet_dataset_options o = {.batch_size = b->o.batch,
                               .thread_num = 1,
                               .slots = slot,
                               .n_slot = is_mlp(b) ? 2 : N_ID + 2};
    fleet_dataset *d;

    for (int s = 0; s < N_ID; s++)
        slot[2 + s] = (fleet_slot){.name = b->name[s], .dtype = FLEET_INT64};
    d = fleet_queue_dataset(b->f, &o);
    if (!d || fleet_dataset_set_filelist(d, path, n) != FLEET_OK)
        fail("dataset");
    return d;
}
