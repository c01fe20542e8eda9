//! The passes under the sanitizer.
use super::Replay;
use crate::error::{Context, Failure};
use crate::print;
use crate::replay::instruments::sanitize::Sanitized;
use crate::replay::platform::Platform;
use crate::replay::policy::{Choice, PolicyName, with_policy};
use crate::replay::report::SanitizerReport;
use ptarmigan::quicklist::{Layered, Policy, Rules};
use ptarmigan_hosted::Delivery;
use ptarmigan_rig::Watchable;
use ptsan::{Adversary, Config};

/// With a seed: at how many of 1000 hooks of the sanitizer a CPU walks the tables speculatively.
const RATE: u16 = 60;

impl<P: Platform> Replay<'_, P> {
    /// Runs the passes under the sanitizer: one, or one for each seed.
    pub(super) fn sanitize(&self, policy: Choice) -> Result<SanitizerReport, Failure> {
        let mut report = SanitizerReport::default();
        for n in 0..u64::from(self.args.seeds) {
            let seed = self.args.seed.map(|first| first.wrapping_add(n));
            self.sanitize_once(policy, seed, &mut report)?;
        }
        Ok(report)
    }

    fn sanitize_once(
        &self,
        policy: Choice,
        seed: Option<u64>,
        report: &mut SanitizerReport,
    ) -> Result<(), Failure> {
        let host = self.host(&self.job())?;
        let cpus = self.job().cpus();
        let config = Config {
            cpus,
            eager_walkers: true,
            asids: self.tlb(cpus).asids > 0,
            adversary: seed.map(|seed| Adversary { seed, rate: RATE }),
            ..Config::new(P::Format::arch())
        };
        let sanitized = Sanitized::new(self.platform.sanitizer(&host, config)?);
        let mmu = sanitized.mmu();
        let checked = self.platform.checked(mmu, cpus)?;
        let delivery = seed.map_or(Delivery::AtOnce, Delivery::Adverse);
        let tlb = self.tlb(cpus);
        let several = self.job().workers() > 1;
        let tables = self.platform.tables(&host)?;
        // Outside the macro, so that it is compiled once for all policies.
        let pass = |policy: &dyn Policy| {
            let machine = self.machine(&host, &tables, policy, P::checked_mmu(&checked), tlb, delivery)?;
            let what = seed.map_or("sanitizing".to_owned(), |seed| format!("sanitizing, seed {seed}"));
            self.pass(&machine, &|| P::checked_watch(&checked, sanitized.watcher(several)), &what)
        };
        with_policy!(
            host,
            self.source(&host, &tables),
            policy,
            self.args.lists(host.config().cpus),
            |made| {
                let layered = Layered::new(mmu, made).context("layers")?;
                pass(&layered)?;
            }
        );
        let left = P::checked_hash_use(&checked).map_or(0, |usage| usage.valid as u64);
        report.ran = true;
        report.passes += 1;
        self.platform.ended(mmu);
        report.add_levels(mmu.findings_by_level());
        mmu.with(|sanitizer, _| {
            sanitizer.finish();
            if !policy.is_historic()
                && let Some(finding) = sanitizer.findings().first()
            {
                let seed = seed.map_or(String::new(), |seed| format!(", seed {seed}"));
                print::error(&format!("policy {}{seed}: {finding}", policy.name()));
            }
            report.add(ptsan::Kind::ALL.iter().map(|kind| (kind.to_string(), sanitizer.count(*kind))));
        });
        report.add([
            ("unserved-fault".to_owned(), sanitized.unserved()),
            ("left-in-hash-table".to_owned(), left),
        ]);
        Ok(())
    }
}
