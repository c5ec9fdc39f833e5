/* golden.h - texts against those of the same name in test/golden.
 *
 * FLEET_UPDATE_GOLDEN=1 writes them anew: read the difference then.
 */
#ifndef FL_TEST_GOLDEN_H
#define FL_TEST_GOLDEN_H

void golden_check(const char *name, const char *got);

#endif
