# Compares the verdicts of two kernels. Files: list (the known differences and the tests that do not count, with their
# reasons), left (tests that are left out), linux and ours (a test and its verdict in each line). Prints what differs and
# a line with the sums; `total` gets these as numbers.

FILENAME ~ "/list$" {
    split($0, part, " *[|] *")
    linux_listed[part[1]] = part[2]
    ours_listed[part[1]] = part[3]
    reason[part[1]] = part[4]
    next
}
FILENAME ~ "/left$" {
    name = $1
    sub("^[^ ]* ", "")
    print "left out: " name ": " $0
    next
}
FILENAME ~ "/linux$" { linux[$1] = $2; next }
{
    tests++
    if (linux[$1] != "pass" && linux[$1] != "fail") {
        print "does not count: " $1 ": Linux " linux[$1] ", here " $2 (reason[$1] == "" ? "" : ": " reason[$1])
        found[$1] = 1
        # A test that is late on a busy machine must not drop out of the sums in silence.
        if (linux_listed[$1] != linux[$1]) {
            print "no longer counts: " $1 ": Linux " linux[$1] ", which is not in " listed
            bad = 1
        }
        next
    }
    interface = $1
    sub("/.*", "", interface)
    if (!(interface in counted)) order[++interfaces] = interface
    counted[interface]++; all_counted++
    passed[interface] += linux[$1] == "pass"; all_passed += linux[$1] == "pass"
    if (linux[$1] == $2) { equal[interface]++; all_equal++; next }
    text = "differs: " $1 ": Linux " linux[$1] ", here " $2
    if ($1 in linux_listed && linux_listed[$1] == linux[$1] && ours_listed[$1] == $2) {
        print text ": " reason[$1]
        found[$1] = 1
    } else {
        print text ": not in " listed
        bad = 1
    }
}
END {
    for (test in linux_listed)
        if (!(test in found)) {
            print "listed, and not seen: " test ": Linux " linux_listed[test] ", here " ours_listed[test]
            bad = 1
        }
    if (interfaces > 1)
        for (i = 1; i <= interfaces; i++) {
            name = order[i]
            printf "%-11s %3d count, Linux passes %3d, equal %3d\n", name, counted[name], passed[name], equal[name]
        }
    all = tests + uncompiled
    printf "%s: %d tests, %d do not compile; %d count, of which Linux passes %d; %d equal, %d differ\n", \
        title, all, uncompiled, all_counted, all_passed, all_equal, all_counted - all_equal
    printf "%s|%d|%d|%d|%d|%d\n", title, all, all_counted, all_passed, all_equal, all_counted - all_equal >>total
    exit bad
}
