/* expected_rows.h - tables with a cap are told which rows the next batch will
 * look up, so that these come from the file while this batch is computed. */
#pragma once

#include "runtime/exec/executor.h"
#include "runtime/store/store.h"

/* Has it such a table? */
bool fl_program_expects(const fleet_program *p);

/* Under the store's lock, which may be shared. */
void fl_expect_rows(const fleet_program *p, const fl_store *s,
                    const fl_input *input, int64_t batch);
