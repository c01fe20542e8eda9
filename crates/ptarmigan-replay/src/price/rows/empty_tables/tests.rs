use super::*;
#[test]
#[ignore]
fn scratch() {
    use crate::{SoloTrace, Trace};
    for name in ["fixture", "rustc", "configure", "compile"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.ptrace"));
        let solo = SoloTrace::new(Trace::open(&path).unwrap());
        let prices = crate::model::page_prices::PriceSet { reused: 1.0, ..Default::default() };
        let start = std::time::Instant::now();
        let priced = crate::price::price(
            &solo,
            4 << 30,
            crate::price::all(),
            &prices,
            std::time::Duration::from_secs(300),
        )
        .unwrap();
        println!("=== {name} {:?}", start.elapsed());
        for one in priced {
            match one.answer {
                Err(e) => println!("{}: {e}", one.about.name),
                Ok(a) => {
                    println!(
                        "{}:\n {}\n {}\n {}\n {}",
                        one.about.name, a.counted, a.cost, a.when_not, a.today
                    );
                    for f in &a.figures {
                        if one.about.name != "blocks" {
                            println!("   {} = {} {}", f.name, f.value, f.unit)
                        }
                    }
                }
            }
        }
    }
}
