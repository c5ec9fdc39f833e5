/* job_signature.h - a text of all that the processes of a job must have in
 * common: compared when a worker joins a server, and when ranks join. */
#pragma once

#include "base/text.h"
#include "runtime/store/store.h"

/* The optimizer's line, with what its setters have changed, and one for each
 * table that has its own. */
void fl_job_signature_add_optimizer(fl_text *t, const fleet_optimizer *o);

/* What is trained, and whether servers or ranks have it, in lines. Text for
 * fl_free(). */
char *fl_job_signature_text(const fl_store *s);

/* The first thing in which two such texts differ, with both values and whose is
 * which, for an error; fl_free() it. NULL: nothing differs. */
char *fl_job_signature_difference(const char *us, const char *ours,
                                  const char *them, const char *theirs);
