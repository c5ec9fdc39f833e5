/* plugin_test.c - plug-ins are found, and refused by name
 * (runtime/device/plugin.h). */
#define SUITE plugin
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/open.h"
#include "runtime/device/plugin.h"

/* Where make has put those of test/plugins: beside the suite, in a folder. */
static void look_in_plugins(void)
{
    setenv("FLEET_PLUGIN_PATH", test_beside("plugins"), 1);
}

TEST(one_that_fits_is_opened_once)
{
    const fl_plugin *a, *b;

    look_in_plugins();
    CHECK_OK(fl_plugin_open("twin", &a));
    CHECK_OK(fl_plugin_open("twin", &b));
    CHECK(a == b);
    CHECK_TEXT(a->name, "twin");
}

TEST(another_version_is_refused_and_both_are_named)
{
    const fl_plugin *p;
    char ours[60];

    look_in_plugins();
    CHECK_FAILS(fl_plugin_open("later", &p), FLEET_EUNSUPPORTED,
                "libfleet_later.so has plug-in version 99, of libfleet 9.8.7; "
                "this is version ");
    snprintf(ours, sizeof ours, "this is version %d, of libfleet ",
             (int)FL_PLUGIN_VERSION);
    CHECK_CONTAINS(fleet_last_error(), ours);
    CHECK_CONTAINS(fleet_last_error(), fleet_version());
    CHECK(p == NULL);
}

TEST(another_name_is_refused)
{
    const fl_plugin *p;

    look_in_plugins();
    CHECK_FAILS(fl_plugin_open("alias", &p), FLEET_EUNSUPPORTED,
                "libfleet_alias.so is plug-in 'twin', not 'alias'");
}

TEST(what_has_no_entry_is_no_plugin)
{
    const fl_plugin *p;

    look_in_plugins();
    CHECK_FAILS(fl_plugin_open("mute", &p), FLEET_EUNSUPPORTED,
                "libfleet_mute.so is no plug-in");
}

TEST(what_is_not_there_is_named)
{
    const fl_plugin *p;

    CHECK_FAILS(fl_plugin_open("pigeons", &p), FLEET_ENOENT,
                "cannot open the plug-in 'pigeons': libfleet_pigeons.so");
}

TEST(a_folder_that_is_not_there_is_refused)
{
    const fl_plugin *p;

    setenv("FLEET_PLUGIN_PATH", test_path("nowhere"), 1);
    CHECK_FAILS(fl_plugin_open("twin", &p), FLEET_ENOENT,
                "FLEET_PLUGIN_PATH is ");
    CHECK_CONTAINS(fleet_last_error(), "/nowhere: No such file or directory");
}

TEST(a_folder_that_has_it_not_is_named_with_the_file)
{
    const fl_plugin *p;

    setenv("FLEET_PLUGIN_PATH", test_folder(), 1);
    CHECK_FAILS(fl_plugin_open("pigeons", &p), FLEET_ENOENT,
                "cannot open the plug-in 'pigeons': libfleet_pigeons.so");
    CHECK_CONTAINS(fleet_last_error(), test_folder());
    CHECK_CONTAINS(fleet_last_error(), ", has no libfleet_pigeons.so)");
}

/* As libfleet_mpi.so is where MPI has been removed. */
TEST(what_needs_a_library_that_is_not_there_says_which)
{
    const fl_plugin *p;

    look_in_plugins();
    CHECK_FAILS(fl_plugin_open("orphan", &p), FLEET_EUNSUPPORTED, "libgone.so");
}

TEST(one_that_joins_no_ranks_is_no_group)
{
    fl_comm *p;

    look_in_plugins();
    CHECK_FAILS(fl_comm_open("twin", NULL, &p), FLEET_EUNSUPPORTED,
                "plug-in 'twin' joins no ranks");
}
