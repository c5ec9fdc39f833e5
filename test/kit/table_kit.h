/* table_kit.h - tables whose rows are in a GPU's memory, for tests of it. */
#pragma once

#include "lookup_kit.h"

#include "runtime/store/table_gpu.h"
#include "runtime/store/store.h"

/* Two tables, slots of one, three and any number of ids, sum and mean. */
extern const lookup_case rows_kit_mixed;

/* What the GPU has of that memory of the store's, or of the first table. */
const fl_mirror *rows_kit_mirror(const fl_store *s, const void *here);
const fl_table_gpu *rows_kit_there(const lookup_scene *s);

/* Rows of the first table that are here; and once they have come. */
int64_t rows_kit_here(const lookup_scene *s);
int64_t rows_kit_count(const lookup_scene *s);

/* The batch of that number, by s->e or another one. */
void rows_kit_train(const lookup_scene *s, fleet_executor *e, int step);
