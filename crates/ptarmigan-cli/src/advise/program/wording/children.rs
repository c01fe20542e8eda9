//! Advice on children that live on: a process for each request, subshells, and lost sharing.
use super::super::super::advice::{Details, Verdict};
use super::super::super::expect::{Expect, Figure};
use super::super::super::facts;
use super::super::super::figures::percent;
use super::super::languages::{self, Language};
use super::super::pooler::Servers;
use super::super::rejected::not;
use super::super::seen::PAGE;
use super::super::sharing::SharingLost;
use super::super::starts::{Started, Starts};
use super::super::subshells::{OfShell, Subshells};
use super::{LEAST_CALLER, LOWER_BOUND, Look, Proposal, STARTS, Tables, UNSEEN_WRITES, list};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count, Failure, Time};
use ptarmigan_trace::Call;
use std::collections::BTreeMap;

/// The fewest subshells that are advice.
const LEAST_SUBSHELLS: u64 = 16;
/// The fewest starts of an interpreter, and of another program, that are advice.
const LEAST_STARTS: [u64; 2] = [8, 32];
/// The most faults of a program that does hardly more than start: 4 MiB.
const MOST_OF_START: u64 = 1024;

/// The part of children's copies that is likely to be of their runtime, without one and with one.
const WRITES_OWN: f64 = 0.1;
const WRITES_RUNTIMES: f64 = 0.5;

impl Look<'_> {
    /// Advises a pooler to a server that forks for each connection.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn pooler(&self, found: &Servers<'_>) -> Result<Verdict, Failure> {
        let kind = "pooler";
        let mut servers = found.found();
        // Children of a shell are another piece's matter.
        servers.retain(|_, server| {
            self.is_users(server.program) && !self.facts.programs[server.program].is_shell()
        });
        let Some(most) = servers.values().max_by_key(|server| server.children) else {
            let reason = match found.most(|program| !self.facts.programs[program].is_shell()) {
                None => "no process forks children that do its work".to_owned(),
                Some(most) => format!(
                    "{} forked {} for processes that do its work, at most {} at once",
                    self.facts.programs[most.program].name,
                    several(most.children, "time"),
                    most.at_once
                ),
            };
            return Ok(not(kind, reason));
        };
        let program = &self.facts.programs[most.program];
        let spared: u64 = servers.values().map(|server| server.children - server.at_once).sum();
        let (children, at_once) = (most.children, most.at_once);
        let time = program.fork_time();
        let each = if time.times > 0 { time.ns as f64 / 1e9 / time.times as f64 } else { 0.0 };
        let saved = each * spared as f64;
        let does = if most.shares {
            "use its shared memory".to_owned()
        } else {
            let each = (most.faults as f64 / children as f64).round() as u64;
            format!("start no program, make {} each on average", several(each, "fault"))
        };
        let mut before = format!(
            "{} children of one {} {does} and end, at most {} at once. ",
            Count(children),
            program.name,
            Count(at_once)
        );
        if time.times > 0 {
            before += &format!(
                "A fork took {} on average, {} fewer save {}. ",
                Time::from_secs(each),
                several(spared, "fork"),
                Time::from_secs(saved)
            );
        }
        let script = match most.shares || program.has_file() {
            true => "",
            false => {
                " If it is a shell's script: builtins without $(…) and pipes (recorded with --names, a \
                      script is told from a program)."
            }
        };
        let postgres = matches!(program.name.as_str(), "postgres" | "postmaster");
        let (title, unknown) = if most.shares {
            let costs = if postgres {
                "what starting a connection costs beside memory (authentication, caches of the process), what \
                 a pooler costs itself."
            } else {
                "what starting a child costs beside memory."
            };
            ("keep child processes for further work", costs)
        } else {
            let costs = "whether a child may serve on: state that an earlier request leaves behind, memory \
                         that grows.";
            ("let a child serve several requests", costs)
        };
        let names = [program.name.clone()];
        let programs = self.shares(servers.values().map(|server| (server.program, server.children, None)));
        let forks = Expect::new(Figure::Forks, &names, spared as f64, self.facts, self.whole);
        let language = Language::of(program);
        let how = if program.name == "nginx" {
            "nginx starts all of its workers anew at each reload: fewer reloads, and fewer worker_processes."
        } else if !most.shares || language != Language::C {
            language.keeping_children()
        } else if postgres {
            "a connection pooler in front of the server, such as pgbouncer, or a pool in the client: \
             connections stay open, and clients take turns."
        } else {
            "keep the children for further connections: a pool of workers, or connections that stay open."
        };
        self.weigh(Proposal {
            kind,
            title: format!("{title}: {} of {}", several(children, "fork"), program.name),
            before,
            how: how.to_owned() + script,
            not_measured: unknown.to_owned(),
            corrected: found.rewrite(self.recorded.trace(), &servers),
            faults_as_calls: 0,
            details: Details { programs, expect: forks.into_iter().collect(), ..Details::default() },
            seconds: Some(saved).filter(|saved| self.counts(*saved)),
            seconds_of: Some((Figure::ForkSeconds, saved)),
            raises_peak: true,
            tables: Tables::Counted,
        })
    }

    /// Advises a shell's script to do without subshells.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn subshells(&self, found: &Subshells) -> Result<Verdict, Failure> {
        let kind = "subshells";
        let many = |(_, shell): &(&usize, &OfShell)| shell.forks >= LEAST_SUBSHELLS;
        let shells: BTreeMap<usize, OfShell> =
            found.shells.iter().filter(many).map(|(program, shell)| (*program, *shell)).collect();
        if shells.is_empty() {
            let forks: u64 = found.shells.values().map(|shell| shell.forks).sum();
            let reason = match forks {
                0 => "no shell forks children that start no program".to_owned(),
                n => format!("shells fork {} that start no program", several(n, "child process")),
            };
            return Ok(not(kind, reason));
        }
        let timed = self.facts.timed;
        let programs = self.shares(
            shells.iter().map(|(program, of)| (*program, of.forks, timed.then_some(of.ns as f64 / 1e9))),
        );
        let (forks, ns) = shells.values().fold((0, 0), |sum, of| (sum.0 + of.forks, sum.1 + of.ns));
        let all: u64 = shells.keys().map(|program| self.facts.programs[*program].forks).sum();
        let bound = if self.recorded.trace().access_unknown { LOWER_BOUND } else { "" };
        let script = match programs.as_slice() {
            [one] if facts::is_shell_name(&one.name) => format!("The script that {} runs", one.name),
            [one] => format!("The script {}", one.name),
            _ => "The scripts that these shells run".to_owned(),
        };
        let mut before = format!(
            "{script} forks {} of {} for children that start no program: $(…), (…) or a part of a pipeline \
             around builtins. ",
            Count(forks),
            several(all, "time")
        );
        if ns > 0 {
            before += &format!("Those forks took {}. ", Time::from_nanos(ns as f64));
        }
        before += bound;
        let names: Vec<String> = programs.iter().map(|share| share.name.clone()).collect();
        let expect = Expect::new(Figure::Forks, &names, forks as f64, self.facts, self.whole);
        let seconds = Some(ns as f64 / 1e9).filter(|saved| self.counts(*saved));
        self.weigh(Proposal {
            kind,
            title: format!(
                "let the shell do the work itself: {} without a program, of {}",
                several(forks, "fork"),
                list(&programs, false)
            ),
            before,
            how:
                "printf -v NAME … instead of NAME=$(printf …), read and ${NAME#…} instead of a pipe between \
                  builtins, { …; } instead of ( … ), functions that set a variable instead of writing it; \
                  bash 5.3 and later: ${ …; } instead of $( … )."
                    .to_owned(),
            not_measured: "the ends of the children, and where a subshell is wanted: for variables or a \
                           directory that are to be as before."
                .to_owned(),
            corrected: found.rewrite(self.recorded.trace(), &shells),
            faults_as_calls: 0,
            details: Details { programs, expect: expect.into_iter().collect(), ..Details::default() },
            seconds,
            seconds_of: seconds.map(|saved| (Figure::ForkSeconds, saved)),
            raises_peak: false,
            tables: Tables::Counted,
        })
    }

    /// Advises one start for several jobs.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn starts(&self, found: &Starts) -> Result<Verdict, Failure> {
        let kind = STARTS;
        let many = |(program, of): &(&usize, &Started)| {
            let facts = &self.facts.programs[**program];
            let [interpreter, other] = LEAST_STARTS;
            // Wrappers such as `env` are where another program begins.
            let told = !facts.is_wrapper() || facts.is_shell();
            match of.is_interpreter {
                true => of.starts >= interpreter,
                false => {
                    let small = of.each <= MOST_OF_START && of.spared * 2 >= facts.faults;
                    told && of.starts >= other && small
                }
            }
        };
        let all: BTreeMap<usize, Started> =
            found.programs.iter().filter(many).map(|(program, of)| (*program, *of)).collect();
        let Some((most, of)) = all.iter().max_by_key(|(_, of)| of.spared) else {
            return Ok(not(kind, "no program is started often for small jobs".to_owned()));
        };
        let chosen: BTreeMap<usize, Started> = all
            .iter()
            .filter(|(_, one)| one.is_interpreter == of.is_interpreter)
            .map(|(program, one)| (*program, *one))
            .collect();
        let execs = |program: usize| {
            let calls = self.facts.programs[program].calls.get(&Call::Exec);
            calls.map_or(0, |time| time.ns - time.ns / time.times.max(1))
        };
        let seconds = chosen.keys().map(|program| execs(*program)).sum::<u64>() as f64 / 1e9;
        let programs = self.shares(chosen.iter().map(|(program, of)| (*program, of.starts, None)));
        let name = &self.facts.programs[*most].name;
        self.weigh(Proposal {
            kind,
            title: format!(
                "{}: {} of {}",
                match of.is_interpreter {
                    true => "let one interpreter do several jobs",
                    false => "let one start do several jobs",
                },
                several(chosen.values().map(|of| of.starts).sum(), "start"),
                list(&programs, false)
            ),
            before: format!(
                "{name} was started {}, with {}{}. ",
                several(of.starts, "time"),
                several(of.each, "fault"),
                match of.is_interpreter {
                    true => " up to the last library that it loads; what follows counts as the job's",
                    false => " and more each time",
                }
            ),
            how: languages::each(
                chosen.keys().map(|program| &self.facts.programs[*program]),
                Language::starting_once,
            ),
            not_measured: "modules that are read after the last library, the interpreter's own work at each \
                           start (often the largest gain), and whether a job leaves state behind."
                .to_owned(),
            corrected: found.rewrite(self.recorded.trace(), self.facts, &chosen),
            faults_as_calls: 0,
            details: Details { programs, ..Details::default() },
            seconds: Some(seconds).filter(|saved| self.counts(*saved)),
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Open,
        })
    }

    /// Advises children to leave the memory shared that they have inherited.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn sharing(&self, found: &SharingLost<'_>) -> Result<Vec<Verdict>, Failure> {
        let kind = "sharing-lost";
        let trace = self.recorded.trace();
        if trace.access_unknown {
            let reason = match self.facts.forks.is_empty() {
                true => "nothing that was recorded forks".to_owned(),
                false => format!("whether children copy what they have inherited, {UNSEEN_WRITES}"),
            };
            return Ok(vec![not(kind, reason)]);
        }
        let mut verdicts = Vec::new();
        for (&program, lost) in found.programs.iter().filter(|(program, _)| self.is_users(**program)) {
            let facts = &self.facts.programs[program];
            let programs = self.shares([(program, lost.copies, None)].into_iter());
            let caller = found.caller(trace, program).filter(|(_, part)| *part >= LEAST_CALLER);
            let caller = caller.and_then(|(place, part)| {
                let place = facts::place_text(place, &trace.symbols)?;
                Some(format!("{place}: {} of those copies", percent(part)))
            });
            // A collector or counts of references write to what a program only reads.
            let likely = if Language::of(facts) == Language::C { WRITES_OWN } else { WRITES_RUNTIMES };
            verdicts.push(self.weigh(Proposal {
                kind,
                title: format!(
                    "keep memory shared with forked children: {} of {} copied",
                    several(lost.copies, "page"),
                    facts.name
                ),
                before: format!(
                    "{} copied {} of inherited memory by writing to it, page after page. Without any of \
                     these copies (an upper bound): ",
                    several(lost.children, "child process"),
                    Bytes(lost.copies << PAGE)
                ),
                how: Language::of(facts).keeping_shared().to_owned(),
                not_measured: "which of the writes are the children's work and stay.".to_owned(),
                corrected: found.rewrite(trace, program),
                faults_as_calls: 0,
                details: Details { programs, caller, likely: Some(likely), ..Details::default() },
                seconds: None,
                seconds_of: None,
                raises_peak: false,
                tables: Tables::Counted,
            })?);
        }
        if verdicts.is_empty() {
            let reason = "no forked child copies a MiB of inherited memory or more".to_owned();
            verdicts.push(not(kind, reason));
        }
        Ok(verdicts)
    }
}
