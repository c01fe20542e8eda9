/* No optional features. */
#define is_feat_ttst_present() false
#define is_feat_bti_present() false
#define is_armv8_4_ttst_present() false
#define is_feat_lpa2_supported() false
#define is_feat_hcx_supported() false
#define is_feat_tgran4K_present() true
#define is_feat_tgran16K_present() false
#define is_feat_tgran64K_present() false
#define is_feat_ttcnp_present() false
