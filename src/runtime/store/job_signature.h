/* job_signature.h - a text of all that the processes of a job must have in
 * common: compared when a worker joins a server, and when ranks join. */
#pragma once

#include "runtime/store/store.h"

/* What is trained, and whether servers or ranks have it, in lines. Text for
 * fl_free(). */
char *fl_job_signature_text(const fl_store *s);

/* The first line in which two such texts differ, and whose is which, for an
 * error; fl_free() it. NULL: none differs. */
char *fl_job_signature_difference(const char *us, const char *ours,
                                  const char *them, const char *theirs);
