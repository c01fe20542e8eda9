# Symptom: system() of a large Perl process takes the longer the more memory it has.
# Cure: a small process, started first, that starts the others.
# Thread: Perl/perl5#15355
use strict;
use warnings;

my $start = sub { system('/bin/true') for 1 .. 40 };
my ($helper, $ready);
if (@ARGV) {
    pipe(my $read, $ready);
    $helper = fork();
    if (!$helper) {
        close $ready;
        <$read>;
        $start->();
        exit;
    }
}
my $heap = 'x' x (96 << 20);
if ($helper) {
    close $ready;
    waitpid $helper, 0;
} else {
    $start->();
}
exit(length $heap == 0);
